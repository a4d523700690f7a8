"""Serves one page on 127.0.0.1, with a token in its address. No other machine can reach it.

Other users of this machine can reach it, and so can other pages in the same browser. So:

- every path begins with a token, which is new each time,
- requests with other host names are refused (DNS rebinding),
- requests that another page sends are refused (cross-site requests).
"""

import hmac
import json
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, Protocol, Self
from urllib.parse import parse_qs, urlsplit

from fedopl.base.errors import OptionError
from fedopl.report.words.numbers import printable


@dataclass(frozen=True, kw_only=True)
class Button:
    """A button in a row: its label, and the action and value that it sends."""

    label: str
    about: str  # for screen readers: which row the button belongs to
    action: str
    value: str = ""


@dataclass
class PageEvents:
    """A list of events that only grows, and a way to wait for more of them."""

    _events: list[str] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _is_closed: bool = False

    def set_text(self, element: str, text: str) -> None:
        """Set the text of an element of the page."""
        self._append(kind="text", id=element, text=printable(text))

    def set_bar(self, element: str, done: int, of: int) -> None:
        """Set a progress bar."""
        self._append(kind="bar", id=element, done=done, of=of)

    def show(self, element: str, *, shown: bool) -> None:
        """Show an element, or hide it."""
        self._append(kind="show", id=element, shown=shown)

    def put_row(
        self, table: str, key: str, cells: Sequence[str | None], buttons: Sequence[Button] = ()
    ) -> None:
        """Add a row to a table, or replace the row with this key.

        The buttons go into the cell that is None.
        """
        shown = [None if text is None else printable(text) for text in cells]
        self._append(
            kind="row", id=table, key=key, cells=shown, buttons=[vars(one) for one in buttons]
        )

    def drop_row(self, table: str, key: str) -> None:
        """Remove a row from a table."""
        self._append(kind="drop", id=table, key=key)

    def go_to(self, address: str) -> None:
        """Make the browser go to another page."""
        self._append(kind="go", to=address)

    def close(self) -> None:
        """Say that no more events will come."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def after(self, position: int, seconds: float) -> tuple[list[str], int, bool]:
        """The events from a position on, the position after them, and whether events have ended.

        If there are none yet, wait for some, but at most this many seconds.
        """
        with self._changed:
            start = position if 0 <= position <= len(self._events) else 0
            self._changed.wait_for(
                lambda: self._is_closed or len(self._events) > start, timeout=seconds
            )
            return self._events[start:], len(self._events), self._is_closed

    def _append(self, **event: Any) -> None:
        with self._changed:
            self._events.append(json.dumps(event, ensure_ascii=False))
            self._changed.notify_all()


LOOPBACK = "127.0.0.1"
# Host names that a browser uses for this machine, directly or through a tunnel.
NAMES = frozenset({LOOPBACK, "localhost"})
MOST_BYTES = 4096  # in one POST request from the page
BEAT_SECONDS, REQUEST_SECONDS = 10.0, 30.0
HTML = "text/html; charset=utf-8"
_SAFE = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; img-src data:"
PAGE_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; " + _SAFE
)
# The report is one file, with its styles inside and no script.
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; " + _SAFE
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Page(Protocol):
    """A page that `PageServer` can serve."""

    events: PageEvents
    has_failed: bool  # the page shows the error, and there will be no report

    def html(self) -> str:
        """The page as HTML, before any event; its script shows the events."""

    def report(self) -> str | None:
        """The report that replaces the page; None until it exists."""

    def act(self, action: str, value: str) -> bool:
        """Carry out a button's action; False if there is no such button."""


class PageServer:
    """Serves a page in its own thread; used as a context manager."""

    def __init__(self, page: Page, port: int = 0) -> None:
        self.page, self.token = page, secrets.token_urlsafe(32)
        self.was_followed = threading.Event()  # a browser asked for what happens
        self.end_was_read = threading.Event()  # a browser got the report, or why there is none
        try:
            self._server = _Server((LOOPBACK, port), self)
        except OSError as error:
            raise OptionError(
                f"--port {port}: cannot be used ({error.strerror}); choose another, or leave it out"
            ) from None
        self.port = int(self._server.server_address[1])  # that the server listens on
        self.address = f"http://{LOOPBACK}:{self.port}/{self.token}/"  # to open in a browser

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.page.events.close()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a browser may keep its connection open

    def __init__(self, address: tuple[str, int], owner: PageServer) -> None:
        self.owner = owner
        super().__init__(address, _Handler)

    def handle_error(self, *_request: object) -> None:
        """Print nothing if a browser closed its connection."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "fedopl", ""
    timeout = REQUEST_SECONDS

    def log_message(self, *_what: object) -> None:
        """Log nothing: a log would contain the token."""

    def do_GET(self) -> None:
        """Serve the page, its script and styles, its events, or the report."""
        name = self._asked_for()
        if name is None:
            return
        page = self.server.owner.page
        report = page.report()
        if name == "" and report is not None:
            self._answer(HTTPStatus.SEE_OTHER, Location="report")
        elif name == "":
            self._send(page.html(), HTML, PAGE_POLICY)
        elif name in _PARTS:
            self._send(_text_of(name), _PARTS[name], PAGE_POLICY)
        elif name == "events":
            self._stream(page.events)
        elif name == "report" and report is not None:
            self._send(report, HTML, REPORT_POLICY)
            self.server.owner.end_was_read.set()
        else:
            self._answer(HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        """Carry out a button's action, if this page sent the request."""
        name = self._asked_for()
        if name is None:
            return
        if self.headers.get("Origin") != f"http://{self.headers.get('Host')}":
            self._answer(HTTPStatus.FORBIDDEN)
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        said = parse_qs(self.rfile.read(int(length)).decode("ascii", "replace"))
        value = said.get("value", [""])[0]
        known = self.server.owner.page.act(name, value)
        self._answer(HTTPStatus.NO_CONTENT if known else HTTPStatus.NOT_FOUND)

    def _asked_for(self) -> str | None:
        """The path after the token; None if the request was refused."""
        if not _is_this_machine(self.headers.get("Host", "")):
            self._answer(HTTPStatus.FORBIDDEN)
            return None
        token, _, name = self.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.owner.token.encode()):
            self._answer(HTTPStatus.NOT_FOUND)
            return None
        return name

    def _stream(self, events: PageEvents) -> None:
        """Send past and new events until the browser's page or the program is closed."""
        self.server.owner.was_followed.set()
        self._head(HTTPStatus.OK, {"Content-Type": "text/event-stream; charset=utf-8"})
        last = self.headers.get("Last-Event-ID", "")
        position, is_over = int(last) if last.isdecimal() else 0, False
        self.wfile.write(b"retry: 1000\n\n")
        while not is_over:
            found, after, is_over = events.after(position, BEAT_SECONDS)
            first = after - len(found)
            lines = [f"id: {first + k + 1}\ndata: {one}\n\n" for k, one in enumerate(found)]
            try:
                self.wfile.write("".join(lines or [":\n\n"]).encode())
                self.wfile.flush()
            finally:  # the browser may disconnect as soon as it has the end
                if self.server.owner.page.has_failed:
                    self.server.owner.end_was_read.set()
            position = after

    def _send(self, text: str, kind: str, policy: str) -> None:
        content = text.encode()
        self._head(
            HTTPStatus.OK,
            {
                "Content-Type": kind,
                "Content-Length": str(len(content)),
                "Content-Security-Policy": policy,
            },
        )
        self.wfile.write(content)

    def _answer(self, status: HTTPStatus, **headers: str) -> None:
        self._head(status, {"Content-Length": "0", **headers})

    def _head(self, status: HTTPStatus, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()


def _is_this_machine(host: str) -> bool:
    try:
        return urlsplit(f"//{host}").hostname in NAMES
    except ValueError:
        return False


_PARTS = {"live.js": "text/javascript; charset=utf-8", "live.css": "text/css; charset=utf-8"}


def _text_of(name: str) -> str:
    """The script or the styles of the page; the styles are the report's and a few more."""
    own = files("fedopl.live").joinpath(name).read_text(encoding="utf-8")
    if name != "live.css":
        return own
    return files("fedopl.report").joinpath("page.css").read_text(encoding="utf-8") + own


def form_of(page: Any, name: str) -> str:
    """The page's template, filled in."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("fedopl.live", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    return environment.get_template(name).render(page=page)
