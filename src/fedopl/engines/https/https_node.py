"""Plain HTTPS as transport, a client's side: it asks for the next question until the run is over.

The client only makes outgoing connections. If a request fails, it tries again. This is safe: the
same question always gets the same bytes, and an answer that is posted several times counts once.
"""

import random
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx

from fedopl.base.errors import FederationError, FedoplError, OptionError
from fedopl.client.client_file import Client, read_client
from fedopl.engines.folder_doors import check_client
from fedopl.engines.https.https_protocol import (
    ANSWERS,
    NEXT,
    POLL_SECONDS,
    QUESTION,
    SECONDS,
    client_context,
)
from fedopl.engines.network.early_imports import import_for_answers
from fedopl.engines.network.remote_doors import RemoteDoors, refused
from fedopl.messages.bundle import largest_bundle
from fedopl.messages.derived_sizes import largest_query
from fedopl.study.study import Study
from fedopl.study.study_file import read_study

TIMEOUT = httpx.Timeout(30.0, read=POLL_SECONDS + 30.0)
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
LARGEST_QUESTION = 1 << 20  # bytes accepted in any case, so that the door can refuse a question
# A server that does not accept a certificate may close the connection without saying why.
UNHEARD = "; does the server have this client's certificate?"
_Teller = Callable[[str], None]
# Returns the answer to a question, given also the seconds within which it must be answered.
_Answering = Callable[[bytes, float], bytes]


class Answered(NamedTuple):
    """The hash of a question, and its answer."""

    known_by: str
    content: bytes


def run_node(
    server: str, client: Path, study: Path, *, certificates: Path, patience: float, tell: _Teller
) -> None:
    """Answer a server's questions for this client until the run is over.

    Args:
        server: the server's address, https://HOST:PORT.
        client: the client's folder, or its client.toml.
        study: the client's own copy of the study.
        certificates: the folder of ca.crt, and NAME.crt and NAME.key of the client.
        patience: seconds without an answer from the server after which to give up.
        tell: called with each message for the owner.

    """
    own, agreed, context = checked_files(server, client, study, certificates)
    doors = RemoteDoors(own, agreed, asker=f"the server {server}", tell=tell)
    doors.open()  # errors for the owner come now, before the first question
    import_for_answers(agreed)
    largest = max(LARGEST_QUESTION, largest_bundle(largest_query(agreed)))
    tell(f"{own.name}: ready; asking {server}")
    HttpsNode(server, context, _answering(doors, tell), largest, patience, tell).run()


def checked_files(
    server: str, client: Path, study: Path, certificates: Path
) -> tuple[Client, Study, ssl.SSLContext]:
    """The client, the study and the certificates of a node; an error if they do not fit."""
    check_address(server)
    own, (agreed, _) = read_client(client), read_study(study)
    context = client_context(certificates, own.name)
    check_client(agreed, own)
    return own, agreed, context


def _answering(doors: RemoteDoors, tell: _Teller) -> _Answering:
    def answer(content: bytes, within: float) -> bytes:
        """The door's answer; if anything fails before the door, a refusal code without text."""
        try:
            return doors.handle(content, within)
        except FedoplError as error:
            tell(f"cannot answer: {error}")
        except Exception as error:  # its text may contain a value of a row
            tell(f"cannot answer: {type(error).__name__}")
        return refused(content)

    return answer


@dataclass
class HttpsNode:
    """Asks for questions and answers them; after a failure it continues where it was."""

    server: str
    context: ssl.SSLContext
    answer: _Answering
    largest: int  # the most bytes of a question
    patience: float
    tell: _Teller
    _latest: Answered = field(default=Answered("", b""), init=False)
    _unsent: bool = field(default=False, init=False)

    def run(self) -> None:
        """Ask and answer until the server says that the run is over."""
        pause, heard, has_heard = FIRST_PAUSE, time.monotonic(), False
        with httpx.Client(base_url=self.server, verify=self.context, timeout=TIMEOUT) as http:
            while True:
                try:
                    if not self._turn(http):
                        return
                except (httpx.HTTPStatusError, httpx.TransportError) as error:
                    _raise_if_permanent(self.server, error)
                    hint = "" if isinstance(error, httpx.ConnectError) or has_heard else UNHEARD
                    if time.monotonic() - heard > self.patience:
                        raise FederationError(
                            f"{self.server}: no answer for {self.patience:g} s ({_said(error)})"
                            f"{hint}"
                        ) from None
                    if pause == FIRST_PAUSE:
                        self.tell(f"{self.server}: {_said(error)}; trying again{hint}")
                    # A random pause, so that not all clients come at once when a server is back.
                    time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
                    pause = min(2 * pause, LONGEST_PAUSE)
                else:
                    pause, heard, has_heard = FIRST_PAUSE, time.monotonic(), True

    def _turn(self, http: httpx.Client) -> bool:
        """Post the pending answer, or ask for the next question; False when the run is over."""
        if self._unsent:
            self._post(http)
            return True
        with http.stream("GET", NEXT) as response:
            if response.status_code == httpx.codes.GONE:
                return False
            response.raise_for_status()
            content = self._read(response)
        if response.status_code == httpx.codes.OK:
            self._take(response.headers, content)
        return True

    def _read(self, response: httpx.Response) -> bytes:
        content = bytearray()
        for chunk in response.iter_raw():
            content += chunk
            if len(content) > self.largest:
                raise httpx.RemoteProtocolError("a question larger than any of the study")
        return bytes(content)

    def _take(self, headers: httpx.Headers, content: bytes) -> None:
        try:
            known_by, within = headers[QUESTION], float(headers[SECONDS])
        except (KeyError, ValueError):
            raise httpx.RemoteProtocolError(
                "the program that answers there is not a fedopl server"
            ) from None
        if known_by != self._latest.known_by:  # it is the same if the server lost the answer
            self._latest = Answered(known_by, self.answer(content, within))
        self._unsent = True

    def _post(self, http: httpx.Client) -> None:
        response = http.post(f"{ANSWERS}/{self._latest.known_by}", content=self._latest.content)
        if response.status_code != httpx.codes.CONFLICT:  # the question is no longer open
            response.raise_for_status()
            self.tell(f"answered, {len(self._latest.content):,} bytes")
        self._unsent = False


def check_address(server: str) -> None:
    """Refuse what is no address of a server."""
    try:
        parts = urlsplit(server)
        is_one = parts.scheme == "https" and bool(parts.hostname) and parts.path in ("", "/")
        parts.port  # noqa: B018  (raises an error if the port is not a number)
    except ValueError:
        is_one = False
    if not is_one:
        raise OptionError(f"--server: expected an address such as https://HOST:8443, came {server}")


def _said(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.HTTPStatusError):
        return f"status {error.response.status_code}"
    return str(error) or type(error).__name__


def _raise_if_permanent(server: str, error: BaseException) -> None:
    """Raise an error if trying again cannot help: one side refuses the other's certificate."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        raise FederationError(
            f"{server}: its certificate is not accepted here: {cause.verify_message}; compare "
            "ca.crt with the server's, and the address with the names it was made for"
        ) from None
    if isinstance(cause, ssl.SSLError) and "ALERT" in (cause.reason or ""):
        raise FederationError(
            f"{server}: it does not accept this client's certificate ({cause.reason}); its "
            "operator needs NAME.crt as it is here, in the server's folder, when it starts"
        ) from None
