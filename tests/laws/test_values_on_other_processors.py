"""Values do not follow from the last bits of a policy, in which processors differ."""

import numpy as np
import pytest
from lying_server import ACTIONS, N_FEATURES, LyingServer, rows, study_with

import fedopl
from fedopl.base.arrays import to_eight_digits
from fedopl.messages.evaluation.personal_values import ValuePersonal
from fedopl.messages.evaluation.policy_values import EstimateValues
from fedopl.messages.message import RowSplit
from fedopl.messages.target.transported_values import N_REGIONS, ValueAtTarget
from fedopl.policies.bent import BentPolicy
from fedopl.policies.kinds import packed
from fedopl.policies.linear import NEVER
from fedopl.policies.neural import NeuralPolicy
from fedopl.solvers.personal_ridge import NO_OTHERS
from fedopl.study.target_plan import TargetPlan

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


def elsewhere(numbers, seed=0):
    """The same numbers as another processor might have them."""
    off = 1e-13 * np.random.default_rng(seed).standard_normal(np.shape(numbers))
    return numbers * (1 + off)


def network_values(numbers):
    """What a client with default limits says of a network."""
    study = study_with(policy=fedopl.Neural(hidden=(4,)))
    server = LyingServer(rows(), study).score()
    fields = {**packed([], study), "neural": numbers[None, :]}
    return server.ask(EstimateValues, split=RowSplit.EVALUATION, **fields).means


def test_a_network_from_another_processor_has_the_same_values_noise_included():
    (size,) = NeuralPolicy.numbers_shape(study_with(policy=fedopl.Neural(hidden=(4,))))
    network = np.random.default_rng(3).standard_normal(size)
    assert np.array_equal(network_values(elsewhere(network)), network_values(network))
    assert network_values(network * (1 + 1e-6))[0] != network_values(network)[0]


def saturated(others, n_rows=2_000):
    """Rows of a client whose effects are those of the others, but for what exceeds zero."""
    rng = np.random.default_rng(5)
    contexts = rng.standard_normal((n_rows, N_FEATURES))
    actions = rng.integers(0, len(ACTIONS), n_rows)
    index = (contexts @ others[:, :-1].T + others[:, -1])[np.arange(n_rows), actions]
    rewards = np.minimum(index, 0) + 0.1 * rng.standard_normal(n_rows)
    return fedopl.LoggedData(contexts, actions, rewards, action_names=ACTIONS)


def test_a_bent_personal_policy_from_another_processor_has_the_same_values_noise_included():
    study = study_with(personal="ridge", evaluation=0.5)
    told = []
    for others in (POLICY, elsewhere(POLICY), POLICY * (1 + 1e-6)):
        server = LyingServer(saturated(POLICY), study).score()
        asked = {
            **packed([], study),
            "others": others,
            "centre": np.zeros(N_FEATURES + 1),
            "scale": np.ones(N_FEATURES + 1),
            "likelihoods": np.array(NO_OTHERS),
        }
        told.append(server.ask(ValuePersonal, **asked).means)
        assert isinstance(server.door.personal_policy, BentPolicy)
    here, there, other = told
    assert np.array_equal(here, there)
    assert here[0] != other[0]


def at_target(change):
    """What a source says of a policy at a target, by numbers that were changed so."""
    study = study_with(target=TargetPlan(client="new"), evaluation=0.5)
    server = LyingServer(rows(), study).score()
    asked = {
        "linear": POLICY[None, :],
        "models": 0.1 * POLICY,
        "means": np.append(np.full(N_FEATURES, 0.01), 1.0),
        "squares": np.append(np.full(N_FEATURES, 0.97), 1.0),
        "regions": np.full((N_REGIONS, N_FEATURES + 1), 0.3),
    }
    changed = {name: change(numbers) for name, numbers in asked.items()}
    for name in ("means", "squares"):
        changed[name][-1] = 1.0
    return server.ask(ValueAtTarget, **{**packed([], study), **changed})


def test_values_at_a_target_are_the_same_whatever_processor_asks():
    here, there = at_target(np.array), at_target(elsewhere)
    assert here.released
    assert np.array_equal(here.means, there.means)
    assert np.array_equal(here.shares, there.shares)
    other = at_target(lambda numbers: numbers * (1 + 1e-6))
    assert (other.means != here.means).any()
