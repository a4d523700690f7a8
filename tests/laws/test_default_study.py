"""Law: a default study delivers the policy of all rows, with intervals half as wide, and says so.

Of two large trials in which one arm is better for everybody, it recommends that arm.
"""

from collections import Counter

import numpy as np
import pytest

import fedopl

pytestmark = pytest.mark.usefixtures("without_figures")

N_ROWS, N_SITES = 64_000, 9
ARMS = ("nothing", "first letter", "second letter")


def few_rows(seed):
    """Ten clients of 60 rows; whom the second arm helps, the third one harms, and vice versa."""
    rng, clients = np.random.default_rng(seed), {}
    for client in range(10):
        x, arms = rng.standard_normal((60, 4)), rng.integers(0, 3, 60)
        rewards = x[:, 2] + x[:, 0] * np.array([0, 1, -1])[arms] + rng.standard_normal(60)
        clients[f"client {client}"] = fedopl.LoggedData(x, arms, rewards, action_names=ARMS)
    return clients


@pytest.mark.parametrize("n_draws", [2, pytest.param(30, marks=pytest.mark.slow_law)])
def test_the_policy_is_that_of_all_rows_and_its_interval_half_as_wide(n_draws):
    widths = {"auto": 0.0, 0.25: 0.0}
    for seed in range(n_draws):
        clients = few_rows(seed)
        runs = {kind: fedopl.learn(clients, seed=seed, evaluation=kind) for kind in widths}
        for kind, run in runs.items():
            low, high = run.values.of("learned").interval()
            widths[kind] += (high - low) / n_draws
        of_all_rows = fedopl.learn(clients, seed=seed, evaluation=0).policy
        assert np.array_equal(runs["auto"].policy.numbers(), of_all_rows.numbers())
    assert widths["auto"] <= 0.65 * widths[0.25]


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
def test_an_arm_that_is_better_for_everybody_is_recommended(n_draws, outcome):
    runs = (fedopl.learn(trial(outcome, seed), seed=seed) for seed in range(n_draws))
    said = Counter(run.recommendation.policy for run in runs)
    assert said["everybody gets first letter"] >= 0.95 * n_draws, said
