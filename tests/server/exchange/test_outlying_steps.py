import numpy as np
import pytest

from fedopl.messages.learning.outcome_sums import SumOutcomes
from fedopl.messages.learning.policy_steps import ImprovedPolicy, ImprovePolicy
from fedopl.server.exchange.cross_checks import outlying_steps

NAMES = "abcdefgh"


def outlying(lengths, rows=None):
    start = np.ones((2, 3))
    query = ImprovePolicy(round=0, parameters=start, centre=np.zeros(3), scale=np.ones(3))
    way = np.ones((2, 3)) / np.sqrt(6)
    answers = {
        name: ImprovedPolicy(parameters=start + length * way)
        for name, length in zip(NAMES, lengths, strict=False)
    }
    return outlying_steps(query, answers, rows or dict.fromkeys(NAMES, 100))


def test_a_step_five_times_as_long_as_the_others_is_named():
    assert outlying([1, 1.1, 0.9, 5]) == {"d": "its step is 4.8 times as long as the others'"}
    assert set(outlying([1, 1.1, 0.9, -5])) == {"d"}


def test_steps_that_differ_as_those_of_honest_clients_do_are_not():
    assert outlying([1, 1.5, 0.7, 2.5, 1.2, 0]) == {}


def test_of_three_clients_only_an_absurd_step_is_named():
    assert outlying([1, 1.1, 50]) == {}  # slopes of honest clients differ as much
    assert set(outlying([1, 1.1, 500])) == {"c"}


@pytest.mark.parametrize("lengths", [[1, 1000], [5], []])
def test_two_clients_cannot_tell_which_of_them_is_wrong(lengths):
    assert outlying(lengths) == {}


def test_clients_with_fewer_rows_may_take_longer_steps():
    few = {**dict.fromkeys(NAMES, 1000), "d": 100}
    assert set(outlying([1, 1.1, 0.9, 7])) == {"d"}
    assert outlying([1, 1.1, 0.9, 7], few) == {}
    none = {**few, "d": 1}
    assert set(outlying([1, 1.1, 0.9, 50], none)) == {"d"}


def test_answers_that_move_no_policy_are_not_compared():
    assert outlying_steps(SumOutcomes(), dict.fromkeys(NAMES), {}) == {}
