"""One process at a time answers for a client's folder, so that none has a budget of its own."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest
from racing_client import door_in, score_rows

from fedopl.base import files
from fedopl.base.errors import StorageError
from fedopl.client.disclosure import ledger
from fedopl.results.files.run_folder import LOCK
from tiny_study import write_tiny
from watching import wait_until

SCRIPT = Path(__file__).with_name("racing_client.py")
PATIENCE = 120


def raced(folder, n_processes):
    """What each of the processes answered; they all start at once."""
    processes = [
        subprocess.Popen(
            [sys.executable, SCRIPT, folder, str(n)], stdout=subprocess.PIPE, text=True
        )
        for n in range(n_processes)
    ]
    try:
        wait_until(lambda: len([*folder.glob("ready-*")]) == n_processes, PATIENCE, "all are ready")
    finally:
        (folder / "start").touch()
        answers = [process.communicate(timeout=PATIENCE)[0] for process in processes]
    return sorted(answers)


@pytest.mark.parametrize("n_processes", [2, pytest.param(6, marks=pytest.mark.slow_law)])
def test_processes_that_answer_at_once_answer_a_question_once(tmp_path, n_processes):
    refused = ["ASKED_ALREADY"] * (n_processes - 1)
    assert raced(tmp_path, n_processes) == [*refused, "ScoreSums"]


def test_doors_opened_before_the_others_answered_know_what_the_others_did(tmp_path):
    early, late = door_in(tmp_path), door_in(tmp_path)
    assert score_rows(early) == score_rows(late) == "ScoreSums"
    assert score_rows(late, 1) == "ASKED_ALREADY"


HOLDER = """
import sys, time
from pathlib import Path
from fedopl.base.files import locked
from fedopl.results.files.run_folder import writing

path = Path(sys.argv[2])
with writing(path) if sys.argv[1] == "folder" else locked(path, 0):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder():
    """A function that starts a process which holds the lock on a file or a folder."""
    started = []

    def hold(kind, path):
        command = [sys.executable, "-c", HOLDER, kind, path]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout.readline() == "held\n"
        return started[-1]

    yield hold
    for process in started:
        process.kill()
        process.communicate()


def test_while_another_process_answers_nothing_leaves_and_nothing_is_lost(
    tmp_path, holder, monkeypatch
):
    door = door_in(tmp_path)
    assert score_rows(door) == "ScoreSums"
    before = door.ledger.file.path.read_bytes()
    other = holder("file", door.ledger.file.path)
    monkeypatch.setattr(ledger, "WAIT_SECONDS", 0.1)
    assert score_rows(door) == "FAILED"
    assert door.ledger.file.path.read_bytes() == before
    other.kill()  # as a power cut would: the kernel releases the lock
    other.wait()
    assert score_rows(door) == "ScoreSums"


def test_a_second_run_in_a_folder_says_who_writes_there(tmp_path, holder):
    tiny = write_tiny(tmp_path / "tiny")
    other = holder("folder", tiny.out)
    for more in ([], ["--resume"]):
        done = tiny.run(*more)
        assert done.code == 1
        assert f"in use by process {other.pid} on" in " ".join(done.err.split())
        assert "choose another folder" in " ".join(done.err.split())
    assert [path.name for path in tiny.out.iterdir()] == [LOCK]
    other.kill()
    other.wait()
    assert tiny.run("--json").code == 0
    assert not (tiny.out / LOCK).exists()


def test_a_ledger_that_was_cut_off_under_an_open_door_is_not_begun_anew(tmp_path):
    door = door_in(tmp_path)
    assert score_rows(door) == "ScoreSums"
    assert score_rows(door, 1) == "ASKED_ALREADY"
    door.ledger.file.path.write_bytes(b"")
    assert score_rows(door, 1) == "FAILED"


def test_a_file_system_without_locks_is_an_error_in_words(tmp_path, monkeypatch):
    def without_locks(_handle):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(files, "_take", without_locks)
    with pytest.raises(StorageError, match=r"ledger.jsonl: cannot be locked: No locks available"):
        door_in(tmp_path).ledger.locked().__enter__()
    assert score_rows(door_in(tmp_path)) == "FAILED"
