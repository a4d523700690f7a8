"""No sum of squares that leaves a client rests, for nearly all of it, on one row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_door import ACTIONS, ask, door_to, reason, scored, study_of

import fedopl
from fedopl.client.disclosure.dominance import RowShares
from fedopl.client.disclosure.limits import Limits
from fedopl.messages.diagnosis.client_models import TellModels
from fedopl.messages.evaluation.description import Describe
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.learning.outcome_sums import SumOutcomes
from fedopl.messages.learning.pair_sums import SumPairs
from fedopl.messages.learning.score_sums import SumFitting, SumScores
from fedopl.messages.learning.value_slope import SlopeOfValue
from fedopl.messages.refusal import Refusal

SUMS = [SumScores, SumPairs, SumFitting, SlopeOfValue, Describe, TellModels]


def with_outlier(data, size, column=0, row=7):
    """The same rows, but for one value; the reward's column comes after the features'."""
    contexts, rewards = data.contexts.copy(), data.rewards.copy()
    if column < data.n_features:
        contexts[row, column] = size
    else:
        rewards[row] = size
    return fedopl.LoggedData(contexts, data.actions, rewards, action_names=ACTIONS)


def naive_shares(cells, columns, weights, n_cells):
    """Shares by cell and by column, one at a time."""
    squares = weights[:, None] * columns**2
    by_cell = [
        max((column.max() / column.sum() if column.any() else 0.0) for column in squares[own].T)
        if (own := cells == cell).any()
        else 0.0
        for cell in range(n_cells)
    ]
    by_column = [column.max() / column.sum() if column.any() else 0.0 for column in squares.T]
    return by_cell, by_column


@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 7))
def test_shares_are_those_of_a_loop_whatever_the_chunks(seed, n_rows, n_cells):
    rng = np.random.default_rng(seed)
    cells = np.sort(rng.integers(0, n_cells, n_rows))
    columns = rng.standard_normal((n_rows, 3)) * rng.integers(0, 2, (n_rows, 3))
    weights = rng.uniform(0.5, 2, n_rows)
    found = RowShares(n_cells, np.zeros(3))
    for start in range(3):  # rows come cell after cell in every chunk
        found.add(cells[start::3], columns[start::3], weights[start::3])
    by_cell, by_column = naive_shares(cells, columns, weights, n_cells)
    np.testing.assert_allclose(found.by_cell, by_cell)
    np.testing.assert_allclose(found.by_column, by_column)


def test_rows_without_weights_count_alike():
    found = RowShares(1, np.zeros(1))
    found.add(np.zeros(2, int), np.array([[3.0], [4.0]]), None)
    assert found.by_column.tolist() == [16 / 25]


@pytest.mark.parametrize("column", [0, 4, 5], ids=["first feature", "last feature", "reward"])
@pytest.mark.parametrize("kind", SUMS, ids=lambda kind: kind.__name__)
def test_sums_that_one_row_dominates_are_refused_whatever_is_asked(draw, kind, column):
    study = study_of(kind, evaluation=0.0)
    for size, is_refused in ((20.0, False), (1e4, True)):
        data = with_outlier(draw(400), size, column)
        ready = scored(door_to(data, study))
        door = door_to(data, study, limits=Limits())
        door._space.keep(ready._space.scored)
        answer = ask(door, kind)
        assert isinstance(answer, Refusal) == is_refused
        assert not is_refused or reason(answer) == "DOMINATED"


def test_the_share_that_a_row_may_have_is_a_limit_of_the_client(draw):
    data, study = draw(400), study_of(evaluation=0.0)
    rest = np.delete(data.contexts[:, 0], 7)
    half = with_outlier(data, np.sqrt(rest @ rest))  # as much as all others together
    for dominance, is_refused in ((0.49, True), (0.51, False)):
        answer = ask(door_to(half, study, limits=Limits(dominance=dominance)), SumScores)
        assert isinstance(answer, Refusal) == is_refused


def test_an_open_door_minds_no_row_and_enrolment_is_no_sum_of_squares(draw):
    data = with_outlier(draw(400), 1e6)
    assert not isinstance(ask(door_to(data), SumScores), Refusal)
    assert not isinstance(ask(door_to(data, limits=Limits()), Enrol), Refusal)


def test_a_row_that_is_held_out_dominates_nothing(draw):
    data = draw(400)
    held_out = door_to(data)._space.study_rows.folds_as_given.held_out
    for row, is_refused in ((np.argmax(held_out), False), (np.argmin(held_out), True)):
        # Which rows are held out does not follow from rewards.
        door = door_to(with_outlier(data, 1e6, column=5, row=row), limits=Limits())
        assert isinstance(ask(door, SumScores), Refusal) == is_refused


@pytest.mark.parametrize("column", [0, 5], ids=["a feature", "the reward"])
def test_a_cell_that_one_row_dominates_is_left_out_with_others(draw, column):
    study = study_of(evaluation=0.0)
    plain, spoilt = draw(600), with_outlier(draw(600), 1e4, column)
    limits = Limits()
    every = ask(door_to(plain, study, limits=limits), SumOutcomes).squared_weights > 0
    door = door_to(spoilt, study, limits=limits)
    told = ask(door, SumOutcomes)
    released = told.squared_weights > 0
    space = door._space
    columns = np.column_stack([space.data.contexts, space.data.rewards])
    (row,) = np.flatnonzero(columns[:, column] == 1e4)
    fold, action = space.folds.of_row[row], space.data.actions[row]
    assert every.all()
    assert not released[fold, action]
    assert not told.sums[fold, action].any()
    # Another one of its fold goes with it, so that it cannot be had by subtraction.
    assert (~released[fold]).sum() >= 2
    assert np.abs(told.sums).max() < 1e4
