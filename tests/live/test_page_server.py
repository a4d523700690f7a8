"""Whoever is not the reader of a page gets nothing from it, and cannot press its buttons."""

import http.client
import json
import socket

import pytest

from fedopl.base.errors import OptionError
from fedopl.live.page_server import HEADERS, MOST_BYTES, PageServer


class Buttons:
    """A page that notes what was pressed."""

    has_failed = False

    def __init__(self, events):
        self.events, self.pressed = events, []

    def html(self):
        return "<!DOCTYPE html>"

    def report(self):
        return None

    def act(self, action, value):
        self.pressed.append((action, value))
        return action == "approve"


@pytest.fixture
def buttons(run_page):
    page = Buttons(run_page.events)
    with PageServer(page) as server:
        yield server


def ask(server, path, method="GET", body=None, **headers):
    """The status, headers and content that come back."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def origin(server):
    return f"http://127.0.0.1:{server.port}"


def press(server, action="approve", **headers):
    headers = {"Origin": origin(server), **headers}
    return ask(server, f"/{server.token}/{action}", "POST", "value=x", **headers)[0]


def test_it_listens_on_this_machine_alone(served):
    assert served._server.socket.getsockname()[0] == "127.0.0.1"


def test_without_the_token_there_is_nothing(served):
    for path in ("/", "/events", "/report", "/live.js", f"/{served.token[:-1]}/", "/x/", "//"):
        status, _, content = ask(served, path)
        assert (status, content) == (404, b""), path
    assert ask(served, f"/{served.token}/")[0] == 200


def test_every_token_is_another(run_page):
    with PageServer(run_page) as first, PageServer(run_page) as second:
        assert first.token != second.token
        assert len(first.token) >= 43  # 256 bits


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "[::1]", "", "a@b:c"])
def test_a_name_that_was_bound_to_this_machine_later_is_refused(served, host):
    status, _, content = ask(served, f"/{served.token}/", Host=host)
    assert (status, content) == (403, b"")


def test_a_tunnel_may_have_another_port(buttons):
    assert ask(buttons, f"/{buttons.token}/", Host="localhost:8000")[0] == 200
    assert press(buttons, Host="localhost:8000", Origin="http://localhost:8000") == 204


@pytest.mark.parametrize("sender", ["http://evil.example", "null", "http://127.0.0.1:1", ""])
def test_another_page_cannot_press_a_button(buttons, sender):
    assert press(buttons, Origin=sender) == 403
    path = f"/{buttons.token}/approve"
    assert ask(buttons, path, "POST", "value=x")[0] == 403  # which says not where it comes from
    assert buttons.page.pressed == []


def test_a_button_is_not_pressed_by_a_link_without_the_token_or_by_too_much(buttons):
    assert ask(buttons, f"/{buttons.token}/approve")[0] == 404
    assert ask(buttons, "/approve", "POST", "value=x", Origin=origin(buttons))[0] == 404
    path, long = f"/{buttons.token}/approve", "x" * (MOST_BYTES + 1)
    assert ask(buttons, path, "POST", long, Origin=origin(buttons))[0] == 413
    odd = {"Origin": origin(buttons), "Content_Length": "-1"}
    assert ask(buttons, path, "POST", None, **odd)[0] == 413
    assert buttons.page.pressed == []
    assert press(buttons) == 204
    assert press(buttons, "other") == 404
    assert buttons.page.pressed == [("approve", "x"), ("other", "x")]


@pytest.mark.parametrize(
    "path", ["../page_server.py", "..%2f..%2fetc/passwd", "/etc/passwd", "live.js/../run_page.py"]
)
def test_no_path_leads_to_other_files(served, path):
    assert ask(served, f"/{served.token}/{path}")[0] == 404


def test_other_methods_and_broken_requests_change_nothing(served):
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE"):
        assert ask(served, f"/{served.token}/", method)[0] == 501
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as broken:
        broken.sendall(b"\x00\xff nothing\r\n\r\n")
        assert b"200" not in broken.recv(100)
    assert ask(served, f"/{served.token}/")[0] == 200


def test_pages_are_not_kept_framed_or_read_by_others(served, finished):
    _, headers, _ = ask(served, f"/{served.token}/")
    assert HEADERS.items() <= headers.items()
    assert "Access-Control-Allow-Origin" not in headers
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    served.page.finish("<!DOCTYPE html>")
    _, headers, _ = ask(served, f"/{served.token}/report")
    assert HEADERS.items() <= headers.items()
    assert "script-src" not in headers["Content-Security-Policy"]  # so none runs
    assert ask(served, f"/{served.token}/")[0] == 303


def events_of(server, last="", most=4096):
    """The numbers and contents of events as they come, from after the last one that was seen."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as stream:
        path = f"/{server.token}/events"
        lines = [f"GET {path} HTTP/1.0", "Host: 127.0.0.1", f"Last-Event-ID: {last}", "", ""]
        stream.sendall("\r\n".join(lines).encode())
        for line in stream.makefile(encoding="utf-8"):
            if line.startswith("id: "):
                number = int(line[4:])
            if line.startswith("data: "):
                yield number, json.loads(line[6:])


def test_whoever_comes_late_or_again_gets_all_that_is_missing(served, finished):
    served.page.begin(("north", "south"), 3)
    for latest in finished.rounds:
        served.page.tell(latest)
    served.page.finish("<!DOCTYPE html>")
    whole = []
    for number, event in events_of(served):
        whole.append((number, event))
        if event["kind"] == "go":
            break
    assert [number for number, _ in whole] == list(range(1, len(whole) + 1))
    first = next(events_of(served, last=str(len(whole) - 1)))
    assert first == whole[-1]
    for odd in ("999999", "-1", "x"):  # of an earlier program, or of nobody
        assert next(events_of(served, last=odd)) == whole[0]


def test_a_port_that_is_taken_is_named(run_page, served):
    with pytest.raises(OptionError, match=rf"--port {served.port}: cannot be used"):
        PageServer(run_page, served.port)


def test_streams_end_with_the_server(run_page):
    run_page.begin(("north",), 1)
    with PageServer(run_page) as server:
        stream = events_of(server)
        next(stream)
    assert list(stream)[-1][1]["kind"] in ("text", "bar")
