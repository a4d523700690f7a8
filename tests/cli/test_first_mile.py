"""Mistakes of the first hour: each is named as what it is."""

import errno
import os
import shlex
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from fedopl.base.errors import StorageError
from fedopl.base.files import check_writable
from tiny_study import FEDOPL, everything_in, fedopl


@pytest.fixture
def make_read_only(monkeypatch):
    """A function that takes the right to write in a folder; root, who always may, is told so."""

    def _make(folder):
        if os.geteuid():
            folder.chmod(0o500)
            return
        make = tempfile.TemporaryFile

        def refuse(**given):
            if given["dir"] == folder:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return make(**given)

        monkeypatch.setattr("tempfile.TemporaryFile", refuse)

    return _make


def test_a_read_only_folder_of_a_client_is_named_before_anything_runs(tiny, make_read_only):
    make_read_only(tiny.settings().parent)
    before = everything_in(tiny.folder)
    said = f"{tiny.settings().parent}: is read-only (Permission denied), and a client writes its"
    checked = tiny.check()
    assert (checked.code, "Not ready" in checked.out) == (1, True)
    assert said in checked.out
    done = tiny.run()
    assert (done.code, done.out) == (1, "")
    assert said in done.err
    assert "chmod u+w" in done.err
    assert everything_in(tiny.folder) == before


def test_a_folder_that_nobody_can_write_to_is_refused():
    with pytest.raises(StorageError, match="/proc: is read-only"):
        check_writable(Path("/proc"), "something should be there")


def test_a_folder_without_its_file_is_named_and_hidden_ones_are_not(tiny):
    tiny.settings("west").rename(tiny.settings("west").with_name("client.toml.txt"))
    (tiny.clients / "east").mkdir()
    (tiny.clients / ".snapshots").mkdir()
    for done in (tiny.check(), tiny.run()):
        assert done.code == 0
        west, east = tiny.clients / "west", tiny.clients / "east"
        assert f"{west}: has no client.toml and takes no part; is it 'client.toml.txt'?" in done.err
        assert f"{east}: has no client.toml and takes no part; write one" in done.err
        assert ".snapshots" not in done.err


def test_swapped_files_are_named_as_such(tiny):
    done = fedopl("check", tiny.settings(), "--clients", tiny.clients)
    assert (done.code, done.out) == (1, "")
    assert f"{tiny.settings()}: is a client's file; expected a study" in done.err
    done = fedopl("check", tiny.settings().parent, "--clients", tiny.clients)
    assert "is a client's folder; expected a study file" in done.err
    done = fedopl("check", tiny.folder, "--clients", tiny.clients)
    assert f"name the study in it: {tiny.study}" in done.err
    done = fedopl("preview", tiny.study, tiny.study)
    assert f"{tiny.study}: is a study file; expected a client's own" in done.err
    tiny.settings().write_bytes(tiny.study.read_bytes())
    assert f"{tiny.settings()}: is a study file" in tiny.check().err


def test_a_run_that_is_stopped_says_how_to_go_on_and_goes_on(tiny):
    tiny.add('[policy]\noracle = "csoaa-sgd"\n[plan]\nrounds = 100\n')
    command = [FEDOPL, "run", tiny.study, "--clients", tiny.clients, "--out", tiny.out]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        while not any(tiny.out.glob("exchanges/*")):  # it has begun
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    before, _, again = err.strip().partition("To continue: ")
    assert before == "fedopl: stopped; the answers so far are kept. "
    words = shlex.split(again)
    assert words[-1] == "--resume"
    assert fedopl(*words[1:]).code == 0
