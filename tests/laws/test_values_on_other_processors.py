"""Values do not follow from the last bits of a policy, in which processors differ."""

import numpy as np
import pytest
from lying_server import ACTIONS, N_FEATURES, LyingServer, rows

from fedopl.base.arrays import to_eight_digits
from fedopl.messages.evaluation.policy_values import EstimateValues
from fedopl.messages.message import RowSplit
from fedopl.policies.linear import NEVER

POLICY = np.random.default_rng(7).standard_normal((len(ACTIONS), N_FEATURES + 1))


def values_of(policy):
    """What a client with default limits, and its own secret, says of a policy."""
    server = LyingServer(rows()).score()
    fields = server.policies(policy)
    return server.ask(EstimateValues, split=RowSplit.EVALUATION, **fields).means


def test_a_policy_from_another_processor_has_the_same_values_noise_included():
    elsewhere = POLICY * (1 + 1e-12 * np.random.default_rng(0).standard_normal(POLICY.shape))
    assert not np.array_equal(elsewhere, POLICY)
    assert np.array_equal(values_of(elsewhere), values_of(POLICY))


def test_another_policy_has_other_noise():
    """Though it decides the same for all rows: the same noise would say that it does."""
    other = POLICY * (1 + 1e-6)
    assert values_of(other)[0] != values_of(POLICY)[0]


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e6])
def test_slopes_keep_eight_digits_in_any_unit_and_beside_never(unit):
    numbers = POLICY * unit
    numbers[0, -1] = NEVER
    found = to_eight_digits(numbers)
    assert np.allclose(found, numbers, rtol=1.5e-8, atol=0)
    assert found[0, -1] == NEVER


def test_what_is_nothing_beside_others_is_nothing():
    assert to_eight_digits(np.array([[1.0], [1e-17]])).tolist() == [[1.0], [0.0]]
