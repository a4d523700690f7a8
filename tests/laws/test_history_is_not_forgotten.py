"""A client that lost the history of what it released says so, and answers no more."""

import shutil

import numpy as np
import pytest
from racing_client import ask_for_values, door_in, score_rows

from fedopl.base.errors import StorageError
from fedopl.client.disclosure.study_history import StudyHistory
from fedopl.client.disk.store import FolderStore
from tiny_study import fedopl, write_tiny

pytestmark = pytest.mark.usefixtures("without_figures")

GONE = "has no copy of it"


@pytest.fixture
def tiny(tmp_path):
    tiny = write_tiny(tmp_path / "tiny", names=("north", "south"))
    assert tiny.run().code == 0
    return tiny


def said(done):
    return " ".join(done.text.split())


def test_a_client_whose_store_was_deleted_answers_no_more_in_this_study(tmp_path):
    door = door_in(tmp_path)
    assert (score_rows(door), ask_for_values(door, 1)) == ("ScoreSums", "ValuesByPart")
    shutil.move(tmp_path / "scores", tmp_path / "elsewhere")
    again = door_in(tmp_path)
    assert (score_rows(again), ask_for_values(again, 2)) == ("FAILED", "FAILED")
    shutil.move(tmp_path / "elsewhere", tmp_path / "scores")
    assert ask_for_values(again, 1) == "ValuesByPart"


def test_a_damaged_record_of_questions_is_not_taken_for_none(tmp_path):
    history = StudyHistory(FolderStore(tmp_path), "study")
    history.require_first("grid", cuts=np.ones(3))
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StorageError, match="damaged"):
        history.require_first("grid", cuts=np.zeros(3))


def test_what_was_not_released_can_be_forgotten(tmp_path):
    """Scores whose sums did not leave have no history."""
    (tmp_path / "scores").mkdir()
    assert score_rows(door_in(tmp_path)) == "ScoreSums"


@pytest.mark.parametrize("more", [["--resume"], ["--out", "another"]], ids=["resumed", "anew"])
def test_a_run_names_the_client_that_lost_its_history_and_what_to_do(tiny, more, monkeypatch):
    monkeypatch.chdir(tiny.folder)
    shutil.rmtree(tiny.clients / "north" / "scores")
    done = tiny.run(*more)
    assert done.code == 1
    assert f"{tiny.clients / 'north'}: the ledger says" in said(done)
    assert GONE in said(done)
    assert "Restore it, or agree on a new study" in said(done)


def test_other_rows_under_the_same_study_are_noticed_too(tiny):
    lines = tiny.table().read_text().splitlines(keepends=True)
    tiny.table().write_text("".join(lines[:-1]))
    done = tiny.run("--resume")
    assert done.code == 1
    assert "its rows are not those it has answered this study for" in said(done)


def test_a_check_names_it_as_a_problem_of_that_client(tiny):
    assert tiny.check().code == 0
    shutil.rmtree(tiny.clients / "north" / "scores")
    done = tiny.check()
    assert done.code == 1
    assert GONE in said(done)


def test_a_new_study_starts_afresh(tiny):
    shutil.rmtree(tiny.clients / "north" / "scores")
    tiny.edit('name = "Tiny"', 'name = "Another"')
    assert tiny.check().code == 0
    assert (
        fedopl("run", tiny.study, "--clients", tiny.clients, "--out", tiny.folder / "2").code == 0
    )
