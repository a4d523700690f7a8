"""Law: nominal 95 % intervals cover the truth 92 to 98 % of the time."""

import numpy as np
import pytest

import fedopl

SIZES = {"large": 160, "middle": 100, "small": 60}
SLOPES = np.array([[1.0, 0.0], [0.0, 1.0]])
N_TRUTH = 20_000


def logged(rng, n_rows):
    """Confounded logging with known propensities, linear rewards, heavy enough noise."""
    contexts = rng.standard_normal((n_rows, 2))
    chance = 1 / (1 + np.exp(-contexts[:, 0]))
    actions = (rng.random(n_rows) < chance).astype(int)
    means = contexts @ SLOPES.T
    rewards = means[np.arange(n_rows), actions] + rng.standard_normal(n_rows)
    propensities = np.column_stack([1 - chance, chance])
    return fedopl.LoggedData(contexts, actions, rewards, propensities, action_names="ab")


# Of 30 runs that cover 95 %, 25 or more do in all but one of 300 such tests.
@pytest.mark.parametrize(
    ("n_runs", "least", "most"),
    [(30, 0.83, 1.0), pytest.param(300, 0.92, 0.98, marks=pytest.mark.slow_law)],
    ids=["few draws", "many draws"],
)
def test_intervals_cover_the_value_and_the_gain_of_the_learned_policy(n_runs, least, most):
    contexts = np.random.default_rng(12345).standard_normal((N_TRUTH, 2))
    means = contexts @ SLOPES.T
    covered = {"value": 0, "gain": 0, "local client": 0}
    for seed in range(n_runs):
        rng = np.random.default_rng(seed)
        clients = {name: logged(rng, size) for name, size in SIZES.items()}
        run = fedopl.learn(clients, basis="linear", evaluation=0.5, mixture="uniform", seed=seed)
        value = means[np.arange(N_TRUTH), run.policy.decide(contexts)].mean()
        arm = means[:, "ab".index(run.best_arm)].mean()
        checks = {
            "value": (run.values.of("learned"), value),
            "gain": (run.gains.over(f"everybody gets {run.best_arm}"), value - arm),
            "local client": (run.values.of("learned", "small"), value),
        }
        for name, (estimate, truth) in checks.items():
            low, high = estimate.interval()
            covered[name] += low <= truth <= high
    for name, count in covered.items():
        assert least <= count / n_runs <= most, f"{name}: {count / n_runs:.3f}"
