"""Totals: every field combined as it declares, whatever the order of the answers."""

from itertools import permutations

import numpy as np
import pytest

from fedopl.messages.combining import combined
from fedopl.messages.evaluation.policy_values import ValuesByPart
from fedopl.messages.learning.outcome_sums import OutcomeSums
from fedopl.messages.learning.score_sums import PairSums

NAMES = ("north", "south", "west")


def test_sums_are_added_up_whatever_clients_weigh():
    rng = np.random.default_rng(0)
    answers = {
        name: OutcomeSums(sums=rng.normal(size=(2, 2, 3, 3)), squared_weights=rng.random((2, 2)))
        for name in NAMES
    }
    total = combined(answers, dict.fromkeys(NAMES, 0.1))
    np.testing.assert_allclose(total.sums, sum(answer.sums for answer in answers.values()))


def test_means_are_weighed_and_no_order_changes_a_bit():
    rng = np.random.default_rng(1)
    weights = {"north": 0.2, "south": 0.5, "west": 0.3}
    answers = {
        name: PairSums(grams=rng.normal(size=(1, 4, 4)), products=rng.normal(size=(1, 4)))
        for name in NAMES
    }
    total = combined(answers, weights)
    expected = sum(weights[name] * answers[name].grams for name in NAMES)
    np.testing.assert_allclose(total.grams, expected)
    for order in permutations(NAMES):
        again = combined({name: answers[name] for name in order}, weights)
        np.testing.assert_array_equal(again.grams, total.grams)


def test_what_is_a_clients_own_has_no_total():
    own = ValuesByPart(
        of_rows=np.full(1, 3.0),
        shares=np.ones(1),
        n_rows=np.full((1, 1), 3.0),
        degrees_of_freedom=np.full((1, 1), 2.0),
        means=np.zeros((1, 1, 2)),
        covariances=np.zeros((1, 1, 2, 2)),
    )
    with pytest.raises(TypeError, match="has no total"):
        combined({"north": own}, {"north": 1.0})
