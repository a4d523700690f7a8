"""What `check` finds between clients, and what it foretells, is what a run meets."""

import numpy as np
import pytest

import fedopl
from fedopl.base.errors import FederationError
from fedopl.engines import run
from tiny_study import CLIENT, NAMES, STRONG, rows, write_csv, write_tiny


@pytest.fixture
def tiny(tmp_path):
    return write_tiny(tmp_path / "tiny")


def check(tiny):
    return fedopl.check(tiny.study, tiny.clients)


def test_clients_that_are_alike_differ_in_nothing(tiny):
    found = check(tiny)
    assert found.is_ready
    assert (found.differences, found.problems) == ((), ())


@pytest.mark.parametrize("factor", [12, 1 / 12])
def test_another_unit_is_noticed(tiny, factor):
    tiny.change(age=[f"{float(age) * factor:.3f}" for age in rows()["age"]])
    (told,) = check(tiny).differences
    assert "feature 'age' is " in told
    assert "north" in told
    assert "is it in the same unit?" in told


def weighed(tiny, **weights):
    """Every client's rows with a weight of their own, of which the study knows."""
    tiny.add('\n[rows]\nweight = "w"\n')
    for turn, name in enumerate(NAMES):
        write_csv(tiny.table(name), {**rows(seed=turn), "w": [str(weights.get(name, 1))] * 160})


def test_check_says_what_clients_count_by_where_rows_weigh_otherwise(tiny):
    weighed(tiny, north=10)
    (told,) = check(tiny).differences
    assert told.startswith("rows weigh 10 on average at north and 1 at south, but clients count by")
    assert 'count = "weight" in [mixture]' in told
    tiny.add('\n[mixture]\nkind = "empirical"\ncount = "weight"\n')
    (told,) = check(tiny).differences
    assert told.endswith("and clients count by row weight: are weights on the same scale?")
    found = run.run(tiny.study, tiny.clients, out=tiny.out)
    assert found.mixture["north"] == pytest.approx(10 / 12, abs=0.02)


def test_weights_that_are_alike_at_all_clients_need_no_word(tiny):
    weighed(tiny, north=1.5)
    assert check(tiny).differences == ()


def test_an_action_never_taken_and_a_level_never_seen_are_noticed(tiny):
    tiny.change(arm=["usual"] * 160, living=["alone"] * 160)
    assert check(tiny).differences == (
        "action 'new' was never taken at north",
        "feature 'living=alone' varies, but not at north",
    )


def test_a_client_that_cannot_be_read_does_not_keep_others_from_being_examined(tiny):
    tiny.table().write_text("")
    found = check(tiny)
    assert not found.is_ready
    assert found.clients["north"].data is None
    assert found.clients["south"].data.n_rows == 160


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        (
            "reward = 1.5",
            "rows have an outcome beyond ±1.5, which the study declares that none",
        ),
        ("overlap = 0.5", "an action with a propensity below 0.5, which the study declares"),
    ],
)
def test_rows_beyond_what_is_declared_are_a_problem(tiny, bound, said):
    tiny.add(f"[declared]\n{bound}\n", tiny.study)
    found = check(tiny)
    assert not found.is_ready
    (problem,) = found.clients["north"].problems
    assert said in problem
    assert f"(declared.{bound.split()[0]})" in problem
    assert problem[0].isdigit()
    assert "agree on a" in problem


def test_rows_within_what_is_declared_are_no_problem(tiny):
    tiny.add("[declared]\nreward = 1000\noverlap = 0.01\n", tiny.study)
    assert check(tiny).is_ready


# --- what is foretold -----------------------------------------------------------------------------


def with_rows(tiny, **sizes):
    for turn, name in enumerate(NAMES):
        write_csv(tiny.table(name), rows(sizes.get(name, 160), seed=turn))


def limits(tiny, text, name="north"):
    tiny.add(f"[limits]\n{text}\n", tiny.settings(name))


SITUATIONS = {
    "nothing special": lambda tiny: None,
    "few rows": lambda tiny: with_rows(tiny, north=60),
    "one row": lambda tiny: with_rows(tiny, north=1),
    "values kept secret": lambda tiny: limits(tiny, "values = false"),
    "large cells": lambda tiny: limits(tiny, "minimum_cell = 40"),
    "few parameters": lambda tiny: limits(tiny, "parameter_share = 0.02"),
    "a small cap": lambda tiny: limits(tiny, "norm_cap = 50"),
    "an action never taken": lambda tiny: tiny.change(arm=["usual"] * 160),
    "an action never taken, refused": lambda tiny: (
        tiny.change(arm=["usual"] * 160),
        tiny.add('unseen = "refuse"\n'),
    ),
    "local nuisances": lambda tiny: tiny.add('kind = "local"\n'),
    "rounds": lambda tiny: tiny.add('[policy]\noracle = "csoaa-sgd"\n[plan]\nrounds = 50\n'),
    "rounds and few rows": lambda tiny: (
        with_rows(tiny, north=110),
        tiny.add('[policy]\noracle = "csoaa-sgd"\n[plan]\nrounds = 50\n'),
    ),
    "rounds and few rows and a secret": lambda tiny: (
        with_rows(tiny, north=110),
        tiny.add('[policy]\noracle = "csoaa-sgd"\n[plan]\nrounds = 50\n'),
        tiny.edit("[data]", f'secret = "{STRONG}"\n[data]', tiny.settings()),
    ),
    "the best of constant arms": lambda tiny: tiny.add('[policy]\nkind = "finite"\n'),
    "climbing": lambda tiny: tiny.add('[policy]\noracle = "direct"\n'),
    "all pairs": lambda tiny: tiny.add('[policy]\noracle = "wap"\n'),
    "too many folds": lambda tiny: tiny.add("folds = 10\n"),
    "an answer to every question": lambda tiny: (
        tiny.edit('"Tiny"', '"Tiny"\nquorum = 1.0'),
        limits(tiny, "minimum_rows = 200"),
    ),
}


@pytest.mark.parametrize("situation", SITUATIONS.values(), ids=SITUATIONS)
def test_what_is_foretold_is_what_a_run_meets(tiny, situation):
    situation(tiny)
    found = check(tiny)
    met: dict[str, set[tuple[str, str]]] = {name: set() for name in NAMES}

    def tell(latest):
        for name, code in latest.refused.items():
            met[name].add((latest.query, code))

    try:
        run.run(tiny.study, tiny.clients, out=tiny.out, watch=lambda *_: Telling(tell))
        ended = True
    except FederationError:
        ended = False
    for name in [name for name in NAMES if not found.clients[name].takes_part]:
        assert {code for _, code in met.pop(name)} == {"TOO_FEW_ROWS"}  # named in one line
    assert {name: set(told) for name, told in found.refusals.items() if name in met} == met
    assert found.is_ready == ended


class Telling:
    """A watch that passes every exchange on."""

    def __init__(self, tell):
        self.tell = tell

    def __enter__(self):
        return self.tell

    def __exit__(self, *_):
        return None


def test_questions_a_client_has_answered_before_count(tiny):
    run.run(tiny.study, tiny.clients, out=tiny.out)
    (tiny.clients / "east").mkdir()  # with whom everybody's models are others
    tiny.settings("east").write_text(CLIENT)
    write_csv(tiny.table("east"), rows(seed=7))
    found = check(tiny)
    assert ("SumScores", "ASKED_ALREADY") in found.refusals["north"]
    assert not found.is_ready


def test_rows_that_changed_since_the_study_was_answered_are_a_problem_of_their_client(tiny):
    run.run(tiny.study, tiny.clients, out=tiny.out)
    tiny.change(gain=[f"{float(gain) + 1:.4f}" for gain in rows()["gain"]])
    found = check(tiny)
    (problem,) = found.clients["north"].problems
    assert "its rows are not those it has answered this study for" in problem
    assert not found.clients["west"].problems
    assert not found.is_ready
    with pytest.raises(fedopl.StudyError, match="north: its rows are not those it has answered"):
        run.run(tiny.study, tiny.clients, out=tiny.folder / "again")


TYPOS = {"age": "61130", "gain": "8034"}  # three digits more than were meant


@pytest.mark.parametrize("column", TYPOS)
def test_a_typo_is_named_with_what_it_changes_and_is_no_obstacle(tiny, column):
    table = rows()
    tiny.change(**{column: [TYPOS[column], *table[column][1:]]})
    found = check(tiny)
    assert found.is_ready
    named = {"age": "feature 'age'", "gain": "the outcome"}[column]
    said = f"north: one row has 100% of the sum of squares of {named}, {TYPOS[column]} where others"
    (line,) = [text for text in found.clients["north"].cautions if text.startswith(said)]
    assert line in str(found)
    others = np.array(table[column][1:], float)
    every = np.append(others, float(TYPOS[column]))
    assert f"the mean is {every.mean():.3g} with it and {others.mean():.3g} without" in line
    assert f"the standard deviation {every.std():.3g} and {others.std():.3g}" in line
    assert run.run(tiny.study, tiny.clients, out=tiny.out).refusals == ()


def test_check_prints_the_contract_and_the_five_rules_with_the_numbers_they_look_at(tiny):
    tiny.change(
        living=["alone"] * 3 + ["with others"] * 157,
        arm=["new"] * 8 + ["usual"] * 152,
    )
    found = check(tiny)
    assert str(found).startswith(
        "Contract exact: only the sums that `fedopl preview` lists leave, exactly, to a server "
        "that keeps to the study."
    )
    assert found.clients["north"].rules == (
        "rows: 160, minimum_rows is 30: takes part",
        "cell: fewer than 5 rows have another value of living=alone at 0: held at that for all "
        "rows",
        "cell: too few rows took 'new' (8 rows) for minimum_cell = 5 in two folds: scored by "
        "models alone here",
        "share: 160 rows to learn from, 4 terms: adds sums of terms",
        "splits: 5 of 5 folds",
        "once: at most 8 questions, each answered once; 0 of 20 studies answered before",
    )
    for rule in found.clients["north"].rules:
        assert f"  · {rule}\n" in str(found)


def test_the_five_rules_are_said_of_a_client_with_few_rows_and_tight_limits(tiny):
    with_rows(tiny, north=40, south=20)
    tiny.add("[evaluation]\nshare = 0.25\n")
    limits(tiny, "parameter_share = 0.05\nminimum_cell = 12\nstudies = 3")
    found = check(tiny)
    assert found.clients["north"].rules == (
        "rows: 40, minimum_rows is 30: takes part",
        "cell: too few rows took 'new' (15 rows) for minimum_cell = 12 in two folds: scored by "
        "models alone here",
        "share: 40 rows to learn from, 4 terms, parameter_share is 0.05: scored and valued, but "
        "adds no sums of terms; it would with 2 terms, an intercept among them",
        "splits: 2 of 5 folds, and only learns: its held-out rows would have fewer than "
        "minimum_cell = 12 of every action",
        "once: at most 8 questions, each answered once; 0 of 3 studies answered before",
    )
    assert found.left_out == ["take no part, with fewer rows than minimum_rows: south (20 rows)"]
    assert found.refusals["south"] == ()
    assert found.is_ready


def test_codes_and_values_far_outside_the_rest_are_named_at_the_client(tiny):
    table = rows()
    ages = [-999 if row < 20 else age for row, age in enumerate(table["age"])]
    gains = [1e4 if row == 5 else gain for row, gain in enumerate(table["gain"])]
    tiny.change(age=ages, gain=gains)
    said = "\n".join(check(tiny).clients["north"].cautions)
    assert "feature 'age' is -999 in 20 rows" in said
    assert "the outcome lies far outside the rest in 1 row" in said


def test_the_outcome_is_named_as_the_table_has_it(tiny):
    tiny.edit('direction = "higher"', 'direction = "lower"')
    tiny.change(gain=[9999 if row < 9 else gain for row, gain in enumerate(rows()["gain"])])
    said = "\n".join(check(tiny).clients["north"].cautions)
    assert "the outcome is 9999 in 9 rows" in said
