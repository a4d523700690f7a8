"""Sums without the first fold: what they and the sums over all rows tell of that fold."""

import numpy as np
import pytest
from test_door import LOCAL, ask, changed, door_to, scored, study_of, without_action

import fedopl
from fedopl.client.disclosure.limits import Limits
from fedopl.messages.learning.score_sums import SumFitting, SumScores


def fitting(data, **options):
    return scored(door_to(data, study_of(SumFitting), **options))


def with_weights(data, weights):
    return fedopl.LoggedData(
        data.contexts, data.actions, data.rewards, action_names=data.action_names, weights=weights
    )


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


def test_an_action_that_nobody_took_is_left_out(draw):
    study = study_of(SumFitting, nuisances=LOCAL)
    door = scored(door_to(without_action(draw(900), 1), study, limits=Limits()))
    told = ask(door, SumFitting)
    assert told.shares.tolist() == [1, 0, 1]
