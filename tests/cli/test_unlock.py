"""A locked door: what its owner sees of it, and how it is opened again."""

import json

import numpy as np
import pytest

from fedopl.client.client_file import read_client
from fedopl.engines.folder_doors import door_of
from fedopl.messages import codec
from fedopl.messages.derived_sizes import axis_sizes
from fedopl.messages.learning.score_sums import SumScores
from fedopl.messages.refusal import Refusal
from fedopl.study.study_file import read_study
from tiny_study import fedopl


@pytest.fixture
def locked(tiny):
    """A study whose north has answered it, and then withheld three answers."""
    tiny.settings().write_text(
        f"{tiny.settings().read_text()}\n[limits]\nscore_queries = 100\nwithheld_answers = 3\n"
    )
    assert tiny.run().code == 0
    assert [asked(tiny, place) for place in range(3)] == ["WITHHELD"] * 3
    return tiny


def asked(tiny, place):
    """What a server hears that wants scores with models for some folds only."""
    study, _ = read_study(tiny.study)
    client = read_client(tiny.clients / "north")
    door = door_of(study, client, client.read(study.table))
    n_models = study.nuisances.folds + 1
    supported = np.ones((n_models, study.n_actions))
    supported[0] = 0
    models = np.full((n_models, study.n_actions, study.n_features + 1), float(place))
    query = SumScores(study=study.digest, exchange=place, models=models, supported=supported)
    answer = codec.decode(door.handle(codec.encode(query)), axis_sizes(study))
    return answer.reason.name if isinstance(answer, Refusal) else "answered"


def test_after_so_many_withheld_answers_nothing_new_is_answered(locked):
    assert asked(locked, 3) == "LOCKED"
    assert asked(locked, 0) == "WITHHELD"  # again, which tells nothing new and is not counted
    assert fedopl("unlock", locked.clients / "north").code == 0
    assert {asked(locked, 0) for _ in range(4)} == {"WITHHELD"}
    assert asked(locked, 3) == "WITHHELD"


def test_the_ledger_says_why_answers_were_withheld_and_that_the_door_is_locked(locked):
    north = locked.clients / "north"
    shown = fedopl("ledger", north).out
    assert shown.count("WITHHELD SMALL_CELLS") == 3
    assert "Withheld (SMALL_CELLS): the answer would have disclosed" in shown
    assert "minimum_cell" in shown  # what to do about it
    lifetime = fedopl("ledger", "--lifetime", north).out
    assert "locked" in lifetime
    assert "studies: 1 of 5 spent" in lifetime
    (summary,) = json.loads(fedopl("ledger", "--lifetime", "--json", north).out)
    assert summary["to"] == ["a run on this machine"]
    assert (summary["name"], summary["withheld"], summary["refusals"]) == ("Tiny", 3, 3)
    assert summary["answers"]["SumScores"] == 1
    assert summary["spent"] == {"value_policies": 6}
    assert "open" in fedopl("ledger", "--lifetime", locked.clients / "west").out


def test_its_owner_unlocks_it(locked):
    north = locked.clients / "north"
    done = fedopl("unlock", north)
    assert done.code == 0
    assert "3 were withheld" in done.out
    assert asked(locked, 3) == "WITHHELD"
    assert fedopl("unlock", north).out == "Nothing is locked.\n"


def test_a_study_can_be_named_and_an_unknown_one_is_an_error(locked):
    north = locked.clients / "north"
    digest = read_study(locked.study)[0].digest.hex()
    done = fedopl("unlock", north, "--study", "ffff")
    assert done.code == 1
    assert "no study there begins with 'ffff'" in done.err
    assert "Unlocked" in fedopl("unlock", north, "--study", digest[:6]).out


def test_a_sixth_study_is_refused_until_its_owner_raises_the_limit(tiny):
    for seed in range(5):
        tiny.study.write_text(f"seed = {seed}\n{tiny.study.read_text().replace('seed', '# seed')}")
        assert tiny.run("--out", tiny.folder / f"run {seed}").code == 0
    tiny.study.write_text(f"seed = 9\n{tiny.study.read_text().replace('seed', '# seed')}")
    done = tiny.run()
    assert done.code == 1
    assert "BUDGET_SPENT" in done.err
    for name in ("north", "south", "west"):
        settings = tiny.settings(name)
        settings.write_text(f"{settings.read_text()}\n[limits]\nstudies = 6\n")
    assert tiny.run("--resume").code == 0
