"""The watcher of a federation ends what is left of it, and nobody else."""

import io
import os
import subprocess
import sys

import pytest

from fedopl.engines.flower import federation_watcher
from fedopl.engines.flower.federation_watcher import MARK, marked

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are those of Unix")
TOKEN = "of this test alone"


@pytest.fixture
def sleeper():
    """A function that starts a process which does nothing, with or without the mark."""
    started = []

    def start(**environment):
        command = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)"]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        started.append(process)
        process.stdout.readline()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def watch(monkeypatch, said):
    monkeypatch.setattr(sys, "argv", ["watcher", TOKEN])
    monkeypatch.setattr(sys, "stdin", io.StringIO(said))
    federation_watcher.watch()


def test_a_command_that_is_gone_leaves_no_marked_process(monkeypatch, sleeper):
    ours, other = sleeper(**{MARK: TOKEN}), sleeper(**{MARK: "another"})
    if not marked(TOKEN):
        pytest.skip("the system does not show the environment of processes")
    watch(monkeypatch, "")
    assert ours.wait(10) == -9
    assert other.poll() is None


def test_nothing_is_ended_once_all_is_done(monkeypatch, sleeper):
    ours = sleeper(**{MARK: TOKEN})
    watch(monkeypatch, f"+{ours.pid}\ndone\n")
    assert ours.poll() is None


def test_groups_are_ended_where_marks_cannot_be_seen(monkeypatch, sleeper):
    ours, ended, other = sleeper(), sleeper(), sleeper()
    monkeypatch.setattr(federation_watcher, "marks_are_seen", lambda: False)
    watch(monkeypatch, f"+{ours.pid}\n+{ended.pid}\n-{ended.pid}\n")
    assert ours.wait(10) == -9
    assert ended.poll() is None  # its number may be another's by now
    assert other.poll() is None
