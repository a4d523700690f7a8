"""Law: of two large trials in which one arm is better for everybody, a default study says so."""

from collections import Counter

import numpy as np
import pytest

import fedopl

pytestmark = pytest.mark.usefixtures("without_figures")

N_ROWS, N_SITES = 64_000, 9
ARMS = ("nothing", "first letter", "second letter")


def visits(rng, arms):
    """.6 % come on average, and .35 points more of those who got the first letter."""
    return (rng.random(len(arms)) < np.array([0.003, 0.0095, 0.0055])[arms]).astype(float)


def spending(rng, arms):
    """Few spend anything, and of these a few spend most of it.

    The first letter gains a little more than four standard errors over what was done.
    """
    buys = rng.random(len(arms)) < np.array([0.0057, 0.0135, 0.0088])[arms]
    return buys * rng.lognormal(4.3, 1.0, len(arms))


def trial(outcome, seed):
    """Arms are drawn evenly, in sites of different sizes; no feature tells who gains."""
    rng = np.random.default_rng(seed)
    sites = {}
    for site, n in enumerate((N_ROWS * rng.dirichlet(np.full(N_SITES, 4.0))).astype(int)):
        months, spent = rng.integers(1, 13, n), rng.lognormal(5, 1, n)
        contexts = np.column_stack([months, spent, *rng.integers(0, 2, (3, n))]).astype(float)
        arms = rng.integers(0, len(ARMS), n)
        sites[f"site {site}"] = fedopl.LoggedData(
            contexts, arms, outcome(rng, arms), action_names=ARMS
        )
    return sites


@pytest.mark.parametrize("outcome", [visits, spending])
@pytest.mark.parametrize("n_draws", [1, pytest.param(20, marks=pytest.mark.slow_law)])
def test_the_arm_that_is_better_for_everybody_is_recommended(n_draws, outcome):
    runs = (fedopl.learn(trial(outcome, seed), seed=seed) for seed in range(n_draws))
    said = Counter(run.recommendation.policy for run in runs)
    assert said["everybody gets first letter"] >= 0.95 * n_draws, said
