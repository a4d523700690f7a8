"""Sums without the first fold: what they and the sums over all rows tell of that fold."""

from dataclasses import replace

import numpy as np
import pytest
from test_door import LOCAL, ask, changed, door_to, reason, scored, study_of, without_action

import fedopl
from fedopl.client.disclosure.limits import Limits
from fedopl.messages.learning.score_sums import ScoreSums, SumFitting, SumScores
from fedopl.messages.message import RowSplit


def fitting(data, **options):
    return scored(door_to(data, study_of(SumFitting), **options))


def with_weights(data, weights):
    return fedopl.LoggedData(
        data.contexts, data.actions, data.rewards, action_names=data.action_names, weights=weights
    )


def with_known(door, known):
    """The door, with scores only where it is said so (n_training, n_actions)."""
    kept = door._space.scored
    values = kept.values.copy()
    values[door._space.training] = np.where(known, values[door._space.training], np.nan)
    door._space.keep(replace(kept, values=values))
    return door


def assert_told_unless_few(door, n_rows):
    """Sums are refused where this many rows would be told apart, and the minimum is 12."""
    told = ask(door, SumFitting)
    if 0 < n_rows < 12:
        assert reason(told) == "SMALL_CELLS"
    else:
        assert isinstance(told, ScoreSums)


@pytest.mark.parametrize("is_weighted", [False, True], ids=["plain", "weighted"])
def test_sums_are_those_of_a_loop_without_the_first_fold(draw, is_weighted):
    data = draw(300)
    weights = np.random.default_rng(5).uniform(0.5, 2.0, 300) if is_weighted else None
    door = fitting(with_weights(data, weights), limits=Limits())
    told = ask(door, SumFitting)
    space = door._space
    data, weights = space.data, space.data.weights
    gram, products, squares, total = np.zeros((6, 6)), np.zeros((3, 6)), np.zeros(3), 0.0
    for row in range(300):
        if space.folds.held_out[row] or space.folds.of_row[row] == 0:
            continue
        weight, x = weights[row] if is_weighted else 1.0, np.append(data.contexts[row], 1.0)
        gram += weight * np.outer(x, x)
        products += weight * np.outer(space.scores[row], x)
        squares += weight * space.scores[row] ** 2
        total += weight
    np.testing.assert_allclose(told.grams, [gram / total])
    np.testing.assert_allclose(told.products, products / total)
    np.testing.assert_allclose(told.squares, squares / total)
    np.testing.assert_allclose(told.shares, 1.0)


def test_rewards_of_the_first_fold_enter_by_the_models_of_others_only(draw):
    study = study_of(SumFitting)
    data = draw(300)
    first = door_to(data, study)._space.study_rows.folds_as_given.of_row == 0
    told = [
        ask(scored(door_to(rows, study)), kind)
        for kind in (SumFitting, SumScores)
        for rows in (data, changed(data, data.rewards + 5.0 * first))
    ]
    np.testing.assert_array_equal(told[0].products, told[1].products)
    assert np.abs(told[2].products - told[3].products).max() > 0.1


@pytest.mark.parametrize("more", [0, 1])
def test_the_first_fold_has_enough_rows_for_it_is_the_difference(draw, more):
    data = draw(300)
    n_first = int((door_to(data)._space.folds.of_row == 0).sum())
    limits = Limits(minimum_cell=1, parameter_share=6 / (n_first + more - 0.5))
    told = ask(fitting(data, limits=limits), SumFitting)
    if more:
        assert reason(told) == "SMALL_CELLS"
    else:
        assert isinstance(told, ScoreSums)


@pytest.mark.parametrize("n_rows", [0, 1, 11, 12])
@pytest.mark.parametrize("lacking", [False, True], ids=["only these", "all but these"])
@pytest.mark.parametrize("split", [RowSplit.VALIDATION, RowSplit.FITTING], ids=["first", "others"])
def test_so_has_each_action_with_scores_and_without(draw, split, lacking, n_rows):
    door = fitting(draw(900), limits=Limits())
    space = door._space
    inside = np.arange(space.n_training)[space.rows(split)]
    known = np.ones((space.n_training, 3), bool)
    if not lacking:
        known[inside, 1] = False
    known[inside[:n_rows], 1] = not lacking
    assert_told_unless_few(with_known(door, known), n_rows)


@pytest.mark.parametrize("n_rows", [0, 1, 11, 12])
def test_two_actions_differ_in_enough_rows_of_the_fold(draw, n_rows):
    door = fitting(draw(900), limits=Limits())
    space = door._space
    inside = np.arange(space.n_training)[space.rows(RowSplit.VALIDATION)]
    known = np.ones((space.n_training, 3), bool)
    known[inside[:40], 1] = known[inside[: 40 + n_rows], 2] = False
    assert_told_unless_few(with_known(door, known), n_rows)


@pytest.mark.parametrize("n_rows", [0, 1, 11, 12])
def test_an_action_lacks_enough_rows_of_the_fold_also_where_every_other_lacks_more(draw, n_rows):
    door = fitting(draw(900), limits=Limits())
    space = door._space
    inside = np.arange(space.n_training)[space.rows(RowSplit.VALIDATION)]
    known = np.ones((space.n_training, 3), bool)
    known[inside[:30], 0] = known[inside[30:60], 1] = known[inside[60 : 60 + n_rows], 2] = False
    assert_told_unless_few(with_known(door, known), n_rows)


@pytest.mark.parametrize("n_first", [1, 4, 5])
def test_a_value_that_few_rows_of_the_fold_have_cannot_be_had_by_subtraction(draw, n_first):
    data = draw(900, groups=np.arange(900))  # by which folds are made, whatever the contexts
    dealt = door_to(data)._space.study_rows.folds_as_given
    first = np.flatnonzero(dealt.of_row == 0)
    others = np.flatnonzero((dealt.of_row != 0) & ~dealt.held_out)
    contexts = data.contexts.copy()
    contexts[:, 0] = 0.0
    contexts[first[:n_first], 0] = contexts[others[:20], 0] = 1.0
    rare = fedopl.LoggedData(
        contexts, data.actions, data.rewards, action_names=data.action_names, groups=data.groups
    )
    for limits in (Limits(), Limits.open()):
        door = fitting(rare, limits=limits)
        total, part = ask(door, SumScores, exchange=0), ask(door, SumFitting)
        space = door._space
        left = total.grams[0] * space.n_training - part.grams[0] * len(others)
        if limits == Limits():  # also hidden are few rows of another fold and action
            cells = dealt.of_row[others[:20]].astype(int) * 3 + rare.actions[others[:20]]
            counts = np.bincount(cells)
            hidden = counts[counts < limits.minimum_cell].sum()
            assert n_first + hidden >= limits.minimum_cell
        else:
            hidden = 0
        assert left[0, -1] == pytest.approx(n_first + hidden)
        row = rare.contexts[first[0]]
        is_row = n_first == 1 and np.allclose(left[0, :-1] / left[0, -1], row)
        assert is_row == (n_first == 1 and not hidden)


def test_an_action_that_nobody_took_is_left_out(draw):
    study = study_of(SumFitting, nuisances=LOCAL)
    door = scored(door_to(without_action(draw(900), 1), study, limits=Limits()))
    told = ask(door, SumFitting)
    assert told.shares.tolist() == [1, 0, 1]


def test_sums_to_fit_with_are_told_as_often_as_rows_are_scored(draw):
    door = fitting(draw(300), limits=Limits())
    assert isinstance(ask(door, SumFitting, exchange=1), ScoreSums)
    assert isinstance(ask(door, SumFitting, exchange=1), ScoreSums)
    assert reason(ask(door, SumFitting, exchange=2)) == "BUDGET_SPENT"
