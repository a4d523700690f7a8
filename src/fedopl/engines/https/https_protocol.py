"""What both sides of the HTTPS transport agree on.

    GET  /next          200: the open question for the client that asks; headers give the question's
                        ID and how many seconds the server waits for the answer; 204: no question
                        now, ask again; 410: the run is over
    POST /answers/ID    204: the server has the answer (it may be posted again); 409: the question
                        is not open (any more)

Both sides show a certificate. The server has a copy of each client's certificate, which identifies
the client: no header and no path names a client. Clients trust the authority that signed the
server's certificate. A question's ID is the hash of its bytes, so an interrupted run that is
resumed asks the same questions.
"""

import ssl
from collections.abc import Iterable
from pathlib import Path

from fedopl.base.errors import StorageError

NEXT, ANSWERS = "/next", "/answers"
QUESTION = "question"  # the header with a question's ID
SECONDS = "seconds"  # the header with the seconds that the server waits for the answer
POLL_SECONDS = 20.0  # shorter than proxies and firewalls keep idle connections open


def server_context(folder: Path, clients: Iterable[bytes]) -> ssl.SSLContext:
    """TLS for the server: clients must show one of these certificates, in DER."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    # Having a copy of the certificate is enough, whoever signed it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=b"".join(clients))
    _show(context, folder / "server.crt", folder / "server.key")
    return context


def client_context(folder: Path, name: str) -> ssl.SSLContext:
    """TLS for a client: the server's certificate must be for its host, and signed by ca.crt."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _require(folder / "ca.crt", "the server's operator sends it")
    try:
        context.load_verify_locations(folder / "ca.crt")
    except ssl.SSLError:
        raise StorageError(f"{folder / 'ca.crt'}: expected a certificate in PEM") from None
    _show(context, folder / f"{name}.crt", folder / f"{name}.key")
    return context


def _show(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    for path in (certificate, key):
        _require(path, "`fedopl certificates` makes it")
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError:
        raise StorageError(
            f"{certificate}: expected a certificate in PEM, and its key in {key}; they do not fit"
        ) from None


def _require(path: Path, advice: str) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}; {advice}") from None
