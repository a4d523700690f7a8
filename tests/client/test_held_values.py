"""Law: a term's value that all but one to four rows share is the value of all rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_door import ask, door_to, study_of

import fedopl
from fedopl.client.disclosure.held_values import NOTHING_HELD, held_values
from fedopl.client.disclosure.limits import Limits
from fedopl.client.rows import study_rows
from fedopl.messages.learning.outcome_sums import SumOutcomes
from fedopl.messages.learning.score_sums import SumScores
from fedopl.policies.basis import Basis
from parquet_rows import write_rows

ACTIONS = ("a0", "a1", "a2")


def in_parts(columns, n_rows):
    return lambda: (columns[start : start + n_rows] for start in range(0, len(columns), n_rows))


@given(st.lists(st.integers(0, 7), min_size=1, max_size=4), st.integers(0, 99), st.integers(1, 40))
def test_columns_with_one_to_four_other_rows_are_held_however_rows_come(others, seed, n_at_once):
    rng = np.random.default_rng(seed)
    columns = np.full((30, len(others)), 2.0)
    for place, count in enumerate(others):
        columns[rng.choice(30, count, replace=False), place] = rng.normal(size=count)
    held = held_values(in_parts(columns, n_at_once), 5)
    assert held.values == {place: 2.0 for place, count in enumerate(others) if 0 < count < 5}
    assert (
        held(columns).tolist()
        == np.where(np.isin(np.arange(len(others)), [*held.values]), 2.0, columns).tolist()
    )
    assert held_values(in_parts(columns, n_at_once), 1) is NOTHING_HELD


def with_flag(data, n_flagged, seed=0):
    """The table with a first number that so many rows have, held-out and training ones."""
    contexts = data.contexts.copy()
    contexts[:, 0] = 0.0
    contexts[np.random.default_rng(seed).permutation(len(contexts))[:n_flagged], 0] = 1.0
    return fedopl.LoggedData(contexts, data.actions, data.rewards, action_names=ACTIONS)


@pytest.mark.parametrize("n_flagged", [1, 4, 5])
def test_a_flag_of_four_rows_is_held_in_all_rows_and_one_of_five_is_not(draw, n_flagged):
    data = with_flag(draw(300), n_flagged)
    door = door_to(data, limits=Limits())
    assert door._space.data.contexts[:, 0].sum() == (n_flagged if n_flagged == 5 else 0)
    without = door_to(with_flag(data, 0), limits=Limits())
    without._space.study_rows.split = door._space.study_rows.split  # folds follow from contexts
    for kind in (SumOutcomes, SumScores):
        told = [ask(one, kind) for one in (door, without)]
        same = all(
            np.allclose(getattr(told[0], name), getattr(told[1], name))
            for name in kind.answer.__annotations__
        )
        assert same == (n_flagged < 5)


@pytest.mark.parametrize("n_beyond", [3, 5])
def test_a_hinge_that_few_rows_reach_is_held(draw, n_beyond):
    data = draw(300)
    contexts = data.contexts.clip(-0.9, 0.9)
    contexts[:n_beyond, 0] = 1.5 + np.arange(n_beyond)
    data = fedopl.LoggedData(contexts, data.actions, data.rewards, action_names=ACTIONS)
    study = study_of(basis=Basis(kind="hinges", knots={"x0": (-0.5, 0.5, 1.0)}))
    every, some = (door_to(data, study, limits=own)._space for own in (Limits.open(), Limits()))
    terms = [
        np.concatenate([chunk.data.contexts for chunk in space.study_rows.chunks_in_terms()])
        for space in (every, some)
    ]
    varied = [np.ptp(own, axis=0) > 0 for own in terms]
    assert varied[0].all()
    assert (~varied[1]).sum() == (1 if n_beyond == 3 else 0)
    assert np.array_equal(terms[0][:, varied[1]], terms[1][:, varied[1]])
    assert not some.study_rows.held  # the number itself is not held


def test_rows_on_disk_in_several_chunks_hold_what_rows_in_memory_do(draw, tmp_path, monkeypatch):
    monkeypatch.setattr(study_rows, "ROWS_PER_CHUNK", 64)
    data = with_flag(draw(300), 4)
    path = tmp_path / "rows.parquet"
    named = np.array(ACTIONS)[data.actions]
    schema = write_rows(path, data.contexts, named, data.rewards, actions=ACTIONS)
    spaces = [
        door_to(fedopl.read_logged(path, schema, on_disk=folder), limits=Limits())._space.study_rows
        for folder in (None, tmp_path / "rows")
    ]
    assert spaces[0].held.values == spaces[1].held.values == {0: 0.0}
    assert len([*spaces[1].chunks()]) == 5
    assert not any(chunk.data.contexts[:, 0].any() for chunk in spaces[1].chunks())
