"""`--serve` as the installed command: from the address it says to the end of the program."""

import json
import re
import signal
import subprocess
import urllib.error
import urllib.request
from contextlib import contextmanager
from urllib.parse import urlencode

import pytest

from fedopl.cli import following
from tiny_study import FEDOPL, fedopl

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/[\w-]{43}/")
MOST_SECONDS = 120
N_QUERIES = 8  # that a client of the tiny study is asked


@contextmanager
def started(*arguments):
    """The command as a process, and the address that it says on its first line."""
    process = subprocess.Popen(
        [FEDOPL, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        first = process.stderr.readline()
        assert ADDRESS.search(first), first + process.stderr.read()
        yield process, ADDRESS.search(first)[0]
    finally:
        process.kill()
        process.communicate()


def events(address):
    """What happens on a page, as it comes."""
    with urllib.request.urlopen(f"{address}events", timeout=MOST_SECONDS) as stream:
        for line in stream:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


def press(address, action, value=""):
    sender = address.rsplit("/", 2)[0]
    body = urlencode({"value": value}).encode()
    request = urllib.request.Request(f"{address}{action}", body, {"Origin": sender})
    with urllib.request.urlopen(request, timeout=MOST_SECONDS) as answer:
        return answer.status


def run_of(tiny, *more):
    return "run", tiny.study, "--clients", tiny.clients, "--out", tiny.out, "--serve", *more


def test_a_run_is_followed_to_its_report_and_then_the_command_ends(tiny):
    with started(*run_of(tiny)) as (process, address):
        seen = []
        for event in events(address):
            seen.append(event)
            if event["kind"] == "go":
                break
        # The report is there when the page is sent to it, and nothing else has to be waited for.
        with urllib.request.urlopen(address + seen[-1]["to"], timeout=MOST_SECONDS) as page:
            report = page.read()
        out, _ = process.communicate(timeout=MOST_SECONDS)
    assert process.returncode == 0
    assert report == (tiny.out / "report.html").read_bytes()
    assert str(tiny.out / "report.html") in out
    rows = {event["key"] for event in seen if event.get("id") == "exchanges"}
    n_rounds = len((tiny.out / "rounds.jsonl").read_text().splitlines())
    assert rows == set(map(str, range(n_rounds)))
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=MOST_SECONDS)


def test_what_goes_wrong_is_on_the_page_in_the_words_of_the_terminal(tiny):
    tiny.change(arm=None)
    with started(*run_of(tiny)) as (process, address):
        said = next(one["text"] for one in events(address) if one.get("id") == "failure")
        _, err = process.communicate(timeout=MOST_SECONDS)
    assert process.returncode == 1
    assert f"fedopl: {said}\n" in err
    assert "'arm'" in said


def test_a_failure_that_nobody_followed_holds_no_script(tiny, monkeypatch):
    monkeypatch.setattr(following, "COMING_SECONDS", 0.01)
    monkeypatch.setattr(following, "_stay", lambda *_what: pytest.fail("waits for nobody"))
    tiny.settings().write_text('approve = "ask"\n' + tiny.settings().read_text())
    done = fedopl(*run_of(tiny))
    assert done.code == 1
    assert "no page is served" in done.err


def test_an_owner_approves_a_whole_run_from_the_page(tiny):
    tiny.settings().write_text('approve = "ask"\n' + tiny.settings().read_text())
    command = [FEDOPL, "run", tiny.study, "--clients", tiny.clients, "--out", tiny.out]
    with started("node", tiny.clients / "north", "--serve") as (node, address):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        approved, answered = set(), 0
        for event in events(address):
            is_asked = event.get("id") == "waiting" and event["kind"] == "row"
            if is_asked and event["key"] not in approved:
                approved.add(event["key"])
                assert press(address, "approve", event["key"]) == 204
            answered += event.get("id") == "ledger"
            if answered == N_QUERIES:
                break
        assert process.wait(MOST_SECONDS) == 0, process.communicate()
        process.communicate()
        node.send_signal(signal.SIGTERM)
        assert node.wait(MOST_SECONDS) == 128 + signal.SIGTERM
    assert len(approved) == N_QUERIES
    ledger = (tiny.clients / "north/ledger.jsonl").read_text().splitlines()
    assert {json.loads(line)["owner"] for line in ledger} == {"approved by hand"}


def test_what_cannot_be_is_said_before_anything_is_started(tiny):
    north = tiny.clients / "north"
    assert "add --serve" in fedopl(*run_of(tiny)[:-1], "--port", 8000).err
    assert "add --serve" in fedopl("node", north, "--port", 8000).err
    assert "say --server URL or --superlink" in fedopl("node", north).err
    both = fedopl("node", north, "--server", "https://a:1", "--superlink", "a:1").err
    assert "say one of them" in both
    tiny.settings().write_text('approve = "ask"\n' + tiny.settings().read_text())
    asks = fedopl("node", north, "--superlink", "127.0.0.1:1", "--study", tiny.study)
    assert "no page is served" in asks.err
    assert f"fedopl node {north} --serve" in asks.err
    for done in (asks, fedopl("node", tiny.clients / "nobody", "--serve")):
        assert done.code == 1
    tiny.settings("south").chmod(0o600)
    lacking = fedopl(
        "node", tiny.clients / "south", "--superlink", "127.0.0.1:1", "--study", tiny.study
    )
    assert "ca.crt: there is no such file" in lacking.err


@pytest.mark.parametrize(
    "where", [("--superlink", "127.0.0.1:1"), ("--server", "https://127.0.0.1:1")]
)
def test_lacking_certificates_are_named_before_a_page_is(tiny, where):
    south = tiny.clients / "south"
    own = ("--study", tiny.study, "--certificates", tiny.folder / "nowhere", "--serve")
    done = fedopl("node", south, *where, *own)
    assert done.code == 1
    assert not ADDRESS.search(done.err)
    assert "nowhere/ca.crt" in done.err
    assert "--ca " not in done.err
