"""Programs that are forks of a process with the imports done behave as those that Flower starts."""

import json
import os
import signal
import socket
import stat
import subprocess
from contextlib import suppress

import pytest

from fedopl.engines.flower.warm_programs import WarmPrograms, can_fork
from watching import wait_until

pytestmark = pytest.mark.skipif(not can_fork(), reason="the system cannot fork, or shows no marks")

PROBE = """
import json, os, signal, sys, time
from pathlib import Path

with Path(__file__).with_name("imports").open("a") as file:
    file.write("once\\n")


def main():
    if sys.argv[1:] == ["sleep"]:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        print(os.getpid(), flush=True)
        time.sleep(60)
    print("careful", file=sys.stderr)
    told = {"arguments": sys.argv[1:], "said": sys.stdin.read(), "folder": os.getcwd()}
    print(json.dumps(told | {"word": os.environ["WORD"], "process": os.getpid()}))
    return 3
"""
OWN = """#!/bin/sh
echo own
"""
SECONDS = 30


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with an installed program, `probe`, and what Flower would have started instead."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "probe.py").write_text(PROBE)
    (folder / "probe").write_text(OWN)
    (folder / "probe").chmod(0o700)
    about = folder / "probe-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: probe\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[console_scripts]\nprobe = probe:main\n")
    return folder


def warm(place):
    path = os.pathsep.join([str(place), *filter(None, [os.environ.get("PYTHONPATH")])])
    return WarmPrograms([place / "probe"], ["bisect"], {**os.environ, "PYTHONPATH": path})


@pytest.fixture(scope="module")
def programs(place):
    with warm(place) as opened:
        yield opened


def started(programs, *arguments, **more):
    return subprocess.Popen(
        [programs.folder / "probe", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def test_a_fork_has_the_files_folder_environment_and_arguments_of_who_asks(programs, tmp_path):
    asker = started(programs, "a b", "--c", cwd=tmp_path, env={**os.environ, "WORD": "hello"})
    printed, complained = asker.communicate("read me", SECONDS)
    told = json.loads(printed)
    assert told.pop("process") != asker.pid
    assert told == {
        "arguments": ["a b", "--c"],
        "said": "read me",
        "folder": str(tmp_path),
        "word": "hello",
    }
    assert (complained, asker.returncode) == ("careful\n", 3)


def test_many_at_once_are_processes_of_their_own_and_nobody_imports_again(programs, place):
    askers = [started(programs, env={**os.environ, "WORD": "x"}) for _ in range(5)]
    told = [json.loads(asker.communicate("", SECONDS)[0]) for asker in askers]
    assert len({one["process"] for one in told}) == 5
    assert (place / "imports").read_text() == "once\n"


def test_a_signal_reaches_the_fork_and_its_exit_code_comes_back(programs):
    asker = started(programs, "sleep")
    asker.stdout.readline()
    asker.send_signal(signal.SIGTERM)
    asker.communicate(timeout=SECONDS)
    assert asker.returncode == 7


def test_a_fork_that_is_killed_is_told_as_a_shell_would(programs):
    asker = started(programs, "sleep")
    os.kill(int(asker.stdout.readline()), signal.SIGKILL)
    asker.communicate(timeout=SECONDS)
    assert asker.returncode == 128 + signal.SIGKILL


def test_whoever_asks_takes_its_fork_along_when_it_is_killed(programs):
    asker = started(programs, "sleep")
    fork = int(asker.stdout.readline())
    assert programs.fork_of(asker.pid) == fork
    asker.kill()
    asker.communicate(timeout=SECONDS)
    wait_until(lambda: not is_alive(fork), SECONDS, "the end of the fork")
    wait_until(lambda: programs.fork_of(asker.pid) is None, SECONDS, "no note of the fork")


def is_alive(process):
    with suppress(ProcessLookupError):
        os.kill(process, 0)
        return True
    return False


def test_only_its_owner_can_ask(programs):
    assert stat.S_IMODE(programs.folder.stat().st_mode) == 0o700


def test_who_says_nonsense_or_nothing_does_not_end_the_server(programs):
    for content in (b"", b"\xff" * 8, (4).to_bytes(8, "big") + b"nope"):
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(str(programs.folder / "socket"))
            server.sendall(content)
    asker = started(programs, env={**os.environ, "WORD": "x"})
    assert "process" in asker.communicate("", SECONDS)[0]


def test_without_the_process_flowers_own_program_runs(place):
    with warm(place) as opened:
        os.kill(opened._process.pid, signal.SIGKILL)
        opened._process.wait()
        assert started(opened).communicate("", SECONDS)[0] == "own\n"
    assert not opened.folder.exists()


def test_if_it_cannot_import_flowers_own_program_runs(place):
    with WarmPrograms([place / "probe"], ["bisect"], dict(os.environ)) as opened:
        assert started(opened).communicate("", SECONDS)[0] == "own\n"
