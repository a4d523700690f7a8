"""Law: scores are unbiased if either nuisance is right, and only then."""

import numpy as np
import pytest
from sklearn.dummy import DummyRegressor

import fedopl

SLOPES = np.array([[2.0, 0.0], [-1.0, 1.0], [0.0, -2.0]])
BASES = np.array([1.0, 0.0, -1.0])
N_ROWS, N_DRAWS = 400, 100


def confounded_draw(rng):
    """People with a large first feature mostly get the first action, and rewards lean on it too."""
    contexts = rng.standard_normal((N_ROWS, 2))
    chances = np.exp(contexts @ np.array([[1.0, 0.0, -0.5], [0.0, 0.5, 0.0]]))
    chances /= chances.sum(axis=1, keepdims=True)
    actions = (chances.cumsum(axis=1) < rng.random((N_ROWS, 1))).sum(axis=1)
    means = BASES + contexts @ SLOPES.T
    rewards = means[np.arange(N_ROWS), actions] + rng.standard_normal(N_ROWS)
    return fedopl.LoggedData(contexts, actions, rewards, chances, action_names="abc")


def truth():
    """Values of each constant arm and of 'a if x₀ > 0 else c', as E[x₀·1{x₀ > 0}] = 1/√2π."""
    half = 1 / np.sqrt(2 * np.pi)
    rule = (BASES[0] + BASES[2]) / 2 + (SLOPES[0, 0] - SLOPES[2, 0]) * half
    return np.array([*BASES, rule])


def errors(outcome, propensity):
    """How far the estimates are from the truth, in each of many draws."""
    found = []
    for seed in range(N_DRAWS):
        data = confounded_draw(np.random.default_rng(seed))
        nuisances = fedopl.cross_fit(data, outcome=outcome, propensity=propensity)
        scores = fedopl.aipw_scores(data, nuisances)
        rule = np.where(data.contexts[:, 0] > 0, 0, 2)
        policies = ["a", "b", "c", rule]
        found.append([fedopl.estimate_value(scores, policy).value for policy in policies])
    return np.array(found) - truth()


def standardised_bias(found):
    return found.mean(axis=0) / (found.std(axis=0, ddof=1) / np.sqrt(len(found)))


RIGHT_OUTCOME, WRONG_OUTCOME = "ols", DummyRegressor()
RIGHT_PROPENSITY, WRONG_PROPENSITY = "known", "marginal"


@pytest.mark.parametrize(
    ("outcome", "propensity"),
    [
        (RIGHT_OUTCOME, RIGHT_PROPENSITY),
        (RIGHT_OUTCOME, WRONG_PROPENSITY),
        (WRONG_OUTCOME, RIGHT_PROPENSITY),
    ],
    ids=["both right", "outcome right", "propensity right"],
)
def test_one_right_nuisance_is_enough(outcome, propensity):
    assert np.abs(standardised_bias(errors(outcome, propensity))).max() < 3


def test_two_wrong_nuisances_are_not():
    found = errors(WRONG_OUTCOME, WRONG_PROPENSITY)
    assert np.abs(standardised_bias(found)).max() > 10
    assert np.abs(found.mean(axis=0)).max() > 0.3
