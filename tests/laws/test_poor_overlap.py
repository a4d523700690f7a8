"""Where an action was unlikely for many, intervals know of the rows that a sample missed."""

import numpy as np
import pytest

import fedopl
from fedopl.results.value_tables import arm_name

N_DRAWS = 60


def trial(chance, seed, n_rows=800):
    """The new drug was given with this probability to half of the patients, for whom it is best."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_rows, 3))
    chances = np.where(x[:, 0] > 0, chance, 0.5)
    actions = (rng.random(n_rows) < chances).astype(int)
    effect = 0.5 * x[:, 0] - 0.3 * x[:, 2] + 1.5 * (x[:, 0] > 0) - x[:, 1]
    rewards = x[:, 1] + effect * actions + rng.standard_normal(n_rows)
    known = np.column_stack([1 - chances, chances])
    names = ["usual", "new"]
    return fedopl.LoggedData(x, actions, rewards, propensities=known, action_names=names)


def covered(chance, n_rows=800, **settings):
    """How often the interval of the value of giving everybody the new drug has it."""
    hits = []
    for seed in range(N_DRAWS):
        plan = fedopl.EvaluationPlan(describe=False, **settings)
        policy = "linear" if plan.is_cross_fitted else "finite"
        data = trial(chance, seed, n_rows)
        run = fedopl.learn(
            {"only": data}, basis="linear", policy=policy, evaluation=plan, seed=seed
        )
        low, high = run.values.of(arm_name("new")).interval(0.95)
        hits.append(low <= 0.75 <= high)
    return float(np.mean(hits))


@pytest.mark.parametrize(("chance", "least"), [(0.02, 0.88), (0.05, 0.88), (0.5, 0.88)])
def test_intervals_cover_where_few_took_what_is_valued(chance, least):
    assert least <= covered(chance)


def test_intervals_of_cross_fitted_values_cover_there_too():
    assert covered(0.01, n_rows=200, kind="cross-fitted") >= 0.75


def test_nothing_is_added_where_no_action_was_unlikely():
    data = trial(0.5, 0)
    plain = fedopl.learn({"only": data}, basis="linear", policy="finite", evaluation=0.25)
    scores = fedopl.aipw_scores(data, fedopl.cross_fit(data)).values
    error = plain.values.of(arm_name("new")).standard_error
    assert error == pytest.approx(scores[:, 1].std() / np.sqrt(data.n_rows), rel=0.2)
