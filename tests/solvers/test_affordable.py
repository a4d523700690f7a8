"""Within a budget those get what costs more who gain most for it."""

import itertools

import numpy as np
import pytest

from fedopl.base.errors import OptionError
from fedopl.solvers.places import decide_within


def _drawn(seed, n_rows, n_actions=3):
    rng = np.random.default_rng(seed)
    costs = rng.integers(0, 4, (n_rows, n_actions)).astype(float)
    return rng.normal(size=(n_rows, n_actions)), costs


def _sums(scores, costs, codes):
    row = np.arange(len(codes))
    return scores[row, codes].sum(), costs[row, codes].sum()


@pytest.mark.parametrize("seed", range(8))
def test_nobody_does_better_with_what_is_spent(seed):
    """Brute force over every way to decide."""
    scores, costs = _drawn(seed, 6)
    most = costs.min(axis=1).mean() + 0.6
    gained, spent = _sums(scores, costs, decide_within(scores, costs, most))
    assert spent <= most * 6
    for codes in itertools.product(range(3), repeat=6):
        other, cost = _sums(scores, costs, np.array(codes))
        assert cost > spent or other <= gained + 1e-12


def test_less_than_one_step_of_a_budget_is_left():
    scores, costs = _drawn(9, 5_000)
    most = costs.min(axis=1).mean() + 0.2
    _, spent = _sums(scores, costs, decide_within(scores, costs, most))
    assert 0 <= most * 5_000 - spent < 3


def test_with_enough_to_spend_everybody_gets_what_is_best():
    scores, costs = _drawn(3, 500)
    assert (decide_within(scores, costs, 10.0) == scores.argmax(axis=1)).all()


def test_what_may_not_be_given_is_not():
    scores, costs = _drawn(4, 500)
    scores[::2, 0] = -np.inf
    costs[:, 0] = 0.0
    codes = decide_within(scores, costs, 10.0)
    assert (codes[::2] != 0).all()
    with pytest.raises(OptionError, match="even the cheapest actions cost"):
        decide_within(scores, 1 + costs, 0.5)


def test_of_rows_that_are_alike_the_first_come_first():
    scores, costs = np.tile([0.0, 1.0], (10, 1)), np.tile([0.0, 1.0], (10, 1))
    assert decide_within(scores, costs, 0.3).tolist() == [1] * 3 + [0] * 7
