"""Law: default limits do not change what enough rows say, to the digit; nor its standard errors."""

import numpy as np
import pytest

import fedopl

CUTS = dict.fromkeys(("x0", "x1", "x2"), (-0.5, 0.0, 0.5))  # of many rows each
STUDIES = {
    "linear": {},
    "hinges": {"basis": fedopl.Basis(kind="hinges", knots={"x0": (-1.0, 0.0, 1.0)})},
    "cross-fitted": {"evaluation": "cross-fitted"},
    "pairs": {"policy": fedopl.Linear(oracle="wap")},
    "tree": {"policy": fedopl.Tree(depth=2, cuts=CUTS)},
    "personal": {"personal": "ridge", "evaluation": 0.5},
}


def client(seed, outcome, n_rows=900):
    rng = np.random.default_rng(seed)
    contexts, actions = rng.standard_normal((n_rows, 3)), rng.integers(0, 3, n_rows)
    index = contexts[:, 0] * (actions - 1)
    if outcome == "one in a hundred":
        rewards = (rng.random(n_rows) < 0.01 * np.exp(0.5 * index)).astype(float)
    else:  # one row has most of the squares
        rewards = index + rng.standard_t(2, n_rows) ** 3
    return fedopl.LoggedData(contexts, actions, rewards, action_names="abc")


@pytest.mark.parametrize("outcome", ["one in a hundred", "heavy tails"])
@pytest.mark.parametrize("study", STUDIES)
def test_default_limits_give_the_same_values_and_standard_errors_as_none(study, outcome):
    clients = {name: client(seed, outcome) for seed, name in enumerate("xyz")}
    options = {"basis": "linear", "nuisances": fedopl.NuisancePlan(propensity="marginal")}
    options = {**options, **STUDIES[study]}
    run, same = (fedopl.learn(clients, limits=own, **options) for own in ("guarded", "open"))
    assert not run.refusals
    assert run.values == same.values
    assert run.gains == same.gains
    assert str(run.policy) == str(same.policy)
