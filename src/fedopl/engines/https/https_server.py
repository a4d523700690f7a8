"""Plain HTTPS as transport, the server's side: clients connect to it; it never connects to them."""

import asyncio
import hashlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple, Self

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from fedopl.base.errors import FederationError, OptionError
from fedopl.engines.https.https_protocol import (
    ANSWERS,
    NEXT,
    POLL_SECONDS,
    QUESTION,
    SECONDS,
    server_context,
)
from fedopl.engines.network.certificates import client_certificates
from fedopl.engines.network.coordinate import coordinate
from fedopl.engines.network.early_imports import import_for_solving
from fedopl.engines.run import Watch, check_folder
from fedopl.messages.bundle import largest_bundle
from fedopl.messages.derived_sizes import largest_answer
from fedopl.results.record import Record
from fedopl.server.exchange_counts import expected_exchanges
from fedopl.study.study_file import check_named, read_study

PRESENT_SECONDS = 60.0  # a client counts as connected for so long after its last request
START_SECONDS, CLOSING_SECONDS, STOP_SECONDS, WATCH_SECONDS = 10.0, 5.0, 5.0, 0.02
DRAIN_SECONDS = 0.05
MOST_REQUESTS = 16  # requests of one client at the same time
_PEER = "peer"


class _Question(NamedTuple):
    """A client's question in a round trip, and its ID."""

    known_by: str
    content: bytes


@dataclass
class _Trip:
    """A round trip: its open questions, and the answers; equal answers of a client count once."""

    questions: Mapping[str, _Question] = field(default_factory=dict)
    end: float = 0.0  # the time until which the server waits for answers
    answers: SimpleQueue[tuple[str, bytes]] = field(default_factory=SimpleQueue)
    given: set[tuple[str, bytes]] = field(default_factory=set)
    answered: set[str] = field(default_factory=set)

    def take(self, name: str, content: bytes) -> None:
        """Take a client's answer. If it gives two different ones, the server gets both."""
        known = (name, hashlib.sha256(content).digest())
        if known not in self.given:
            self.given.add(known)
            self.answered.add(name)
            self.answers.put((name, content))


class HttpsTransport:
    """A transport to clients that long-poll over mutual TLS; a context manager that listens.

    If a client dies before it answers, it gets the same question when it is back. The transport
    does not wait for a client that missed a deadline and is not connected.

    Args:
        certificates: the folder of server.crt, server.key and NAME.crt of every client.
        listen: host and port; port 0 takes a free port.
        deadline: seconds that a round trip may take.
        largest: the most bytes of an answer.

    """

    def __init__(
        self, certificates: Path, listen: tuple[str, int], *, deadline: float, largest: int
    ) -> None:
        self.deadline, self.largest = deadline, largest
        self._known = client_certificates(certificates)
        # All clients whose certificates the server has, connected or not.
        self.clients = tuple(sorted(set(self._known.values())))
        self._context = server_context(certificates, self._known)
        self._listen = listen
        self._trip, self._over = _Trip(), False
        self._seen: dict[str, float] = {}
        self._told: set[str] = set()
        self._latest: dict[str, str] = {}  # by client, the ID of the question it answered last
        self._requests: Counter[str] = Counter()
        self._missed: set[str] = set()
        self._all_there = threading.Event()

    # --- the run's side ------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The address that the server listens on."""
        host = f"[{self._listen[0]}]" if ":" in self._listen[0] else self._listen[0]
        return f"https://{host}:{self._listen[1]}"

    def __enter__(self) -> Self:
        listener = _listener(self._listen)
        self._listen = (self._listen[0], listener.getsockname()[1])
        config = Config(
            Starlette(
                routes=[
                    Route(NEXT, self._for_client(self._next)),
                    Route(
                        f"{ANSWERS}/{{known_by}}", self._for_client(self._post), methods=["POST"]
                    ),
                ]
            ),
            http=_WithPeer,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        config.load()
        config.ssl = self._context
        self._server = Server(config)
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(listener)), name="https", daemon=True
        )
        self._thread.start()
        end = time.monotonic() + START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > end:
                raise FederationError(f"{self.url}: the server did not start")
            time.sleep(WATCH_SECONDS)
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.should_exit = True
        self._announce()
        self._thread.join(STOP_SECONDS)

    async def _serve(self, listener: socket.socket) -> None:
        self._loop, self._news = asyncio.get_running_loop(), asyncio.Event()
        await self._server.serve([listener])
        await asyncio.sleep(DRAIN_SECONDS)  # refused connections are still being closed

    def wait_for_all(self, seconds: float) -> None:
        """Wait until every client has connected, but at most this many seconds."""
        self._all_there.wait(seconds)

    def exchange(self, queries: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        """Open a question to each client; yield answers as they come, until the deadline."""
        end = time.monotonic() + self.deadline
        there = self._present()
        waiting = {name for name in queries if name in there or name not in self._missed}
        trip = _Trip({name: _question(content) for name, content in queries.items()}, end)
        self._trip = trip
        self._announce()
        try:
            while waiting and (left := end - time.monotonic()) > 0:
                try:
                    name, content = trip.answers.get(timeout=left)
                except Empty:
                    break
                waiting.discard(name)
                yield name, content
        finally:
            self._trip = _Trip()
        while not trip.answers.empty():  # answers of clients that the loop did not wait for
            yield trip.answers.get()
        self._missed = (self._missed - queries.keys()) | (queries.keys() - trip.answered)

    def end(self) -> None:
        """Tell all connected clients that the run is over, and wait until they have heard it."""
        self._over = True
        self._announce()
        end = time.monotonic() + CLOSING_SECONDS
        while not self._present() <= self._told and time.monotonic() < end:
            time.sleep(WATCH_SECONDS)

    def _present(self) -> set[str]:
        now = time.monotonic()
        return {name for name, at in list(self._seen.items()) if now - at < PRESENT_SECONDS}

    def _announce(self) -> None:
        """Wake all requests that wait for the next question."""

        def wake() -> None:
            self._news.set()
            self._news = asyncio.Event()

        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(wake)

    # --- the clients' side ---------------------------------------------------------------------

    def _for_client(
        self, handler: Callable[[str, Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """The handler, called with the client's name; the name comes only from its certificate."""

        async def handle(request: Request) -> Response:
            name = self._known.get(request.scope["state"][_PEER])
            if name is None:
                return Response(status_code=403)
            if self._requests[name] >= MOST_REQUESTS:
                return Response(status_code=429)
            self._requests[name] += 1
            self._seen[name] = time.monotonic()
            if len(self._seen) == len(self.clients):
                self._all_there.set()
            try:
                return await handler(name, request)
            except ClientDisconnect:
                return Response(status_code=400)
            finally:
                self._requests[name] -= 1

        return handle

    async def _next(self, name: str, _request: Request) -> Response:
        end = time.monotonic() + POLL_SECONDS
        while True:
            news, trip = self._news, self._trip
            if self._over:
                self._told.add(name)
                return Response(status_code=410)
            if name in trip.questions and name not in trip.answered:
                known_by, content = trip.questions[name]
                left = max(trip.end - time.monotonic(), 0.0)
                return Response(content, headers={QUESTION: known_by, SECONDS: f"{left:.3f}"})
            try:
                await asyncio.wait_for(news.wait(), end - time.monotonic())
            except TimeoutError:
                return Response(status_code=204)
            if self._server.should_exit:
                return Response(status_code=204)

    async def _post(self, name: str, request: Request) -> Response:
        known_by, trip = request.path_params["known_by"], self._trip
        asked = trip.questions.get(name)
        if asked is None or asked.known_by != known_by:
            return Response(status_code=204 if self._latest.get(name) == known_by else 409)
        content = bytearray()
        async for chunk in request.stream():
            content += chunk
            if len(content) > self.largest:
                return Response(status_code=413)
        if trip is not self._trip:
            return Response(status_code=409)
        trip.take(name, bytes(content))
        self._latest[name] = known_by
        return Response(status_code=204)


class _WithPeer(H11Protocol):
    """A connection that knows the certificate of its other end."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        self.app_state = {**self.app_state, _PEER: peer}


def _question(content: bytes) -> _Question:
    return _Question(hashlib.sha256(content).hexdigest(), content)


def _listener(listen: tuple[str, int]) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in listen[0] else socket.AF_INET
        return socket.create_server(listen, family=family, backlog=1024)
    except OSError as error:
        raise FederationError(
            f"{listen[0]}:{listen[1]}: cannot listen there: {error.strerror or error}"
        ) from None


LARGEST_PORT = (1 << 16) - 1
_Teller = Callable[[str], None]


def run_over_https(
    study: Path,
    *,
    certificates: Path,
    listen: str,
    out: Path,
    resume: bool = False,
    join: Path | None = None,
    arrival: float = 120.0,
    deadline: float = 120.0,
    watch: Watch = lambda *_run: nullcontext(),
    tell: _Teller = lambda _text: None,
) -> Record:
    """Run the study with all clients that have a certificate here, and tell them when it is over.

    Args:
        study: the study file.
        certificates: the folder of server.crt, server.key and NAME.crt of every client.
        listen: HOST:PORT; port 0 takes a free port.
        out: the run's folder; if it is not empty, `resume` is needed.
        resume: continue the run in the folder, if it is one of this study.
        join: the folder of a finished run, which these clients join.
        arrival: seconds to wait for clients to connect.
        deadline: seconds to wait for answers in each round trip.
        watch: a context manager that gives a function to be called after every exchange, or None.
        tell: called with each message for the operator.

    """
    agreed, _ = read_study(study)
    check_folder(out, agreed, resume=resume)
    transport = HttpsTransport(
        certificates,
        address(listen),
        deadline=deadline,
        largest=largest_bundle(largest_answer(agreed)),
    )
    if join is None:
        check_named(study, agreed, transport.clients)
    n_expected = expected_exchanges(agreed, len(transport.clients))
    with transport, watch(agreed, transport.clients, n_expected) as progress:
        tell(f"{transport.url}: waiting for {', '.join(transport.clients)}")
        import_for_solving()
        record = coordinate(study, transport, out, arrival=arrival, join=join, progress=progress)
        transport.end()
    return record


def address(listen: str) -> tuple[str, int]:
    """Host and port of HOST:PORT."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > LARGEST_PORT:
        raise OptionError(f"--listen: expected HOST:PORT, such as 127.0.0.1:8443, came {listen}")
    return host.strip("[]"), int(port)
