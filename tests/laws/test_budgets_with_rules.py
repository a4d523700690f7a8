"""Law: within a budget nobody gets what is forbidden, and what is told of prices is of the same."""

import numpy as np
import pytest
from test_budgets import ACTIONS, CLIENTS, EUROS, PLAN, _contexts, _held_out, _spent
from test_tree_budgets import CLIENTS as TREE_CLIENTS
from test_tree_budgets import EUROS as TREE_EUROS
from test_tree_budgets import PLAN as TREE_PLAN
from test_tree_budgets import TREE

import fedopl
from fedopl.client.ranked_rows import Affordable, RankedRows, Ranking
from fedopl.policies.allowed.permissions import first_allowed

RULES = {
    "never": [{"action": "both", "when": "age > 0.5"}, {"action": "usual", "when": "age < -1"}],
    "only": {"south": ("usual", "new")},
}


def forbidden(x, client):
    found = np.zeros((len(x), 3), bool)
    found[:, 2] = (x[:, 0] > 0.5) | (client == "south")
    found[:, 0] = x[:, 0] < -1
    return found


@pytest.fixture(scope="module")
def run():
    return fedopl.learn(
        CLIENTS,
        costs=EUROS,
        budget=0.4,
        policy=fedopl.Linear(precision="rows", **RULES),
        **{"evaluation": 0.25, **PLAN},
    )


def test_the_curve_is_of_what_may_be_given(run):
    index = run.statistics.solve(run.mixture).parameters
    assert run.curve.against == "usual"
    for name, told in run.curve.clients.items():
        x, scores = _held_out(run, name)
        row, costs, closed = np.arange(len(x)), _spent(x), forbidden(x, name)
        without = scores[row, first_allowed(np.zeros(len(x), int), closed)]
        for place, price in enumerate(run.curve.prices):
            wanted = x @ index[:, :-1].T + index[:, -1] - price * costs
            decided = np.where(closed, -np.inf, wanted).argmax(axis=1)
            gain = (scores[row, decided] - without).mean()
            assert told.gains[place] == pytest.approx(gain, abs=1e-9)
            assert told.costs[place] == pytest.approx(costs[row, decided].mean(), abs=1e-9)
        for action in range(3):
            given = first_allowed(np.full(len(x), action), closed)
            told_of = told.costs[len(run.curve.prices) + action]
            assert told_of == pytest.approx(costs[row, given].mean(), abs=1e-9)


def test_the_policy_keeps_to_the_budget_and_to_the_rules(run):
    spent = 0.0
    for name, share in run.mixture.items():
        x, _ = _held_out(run, name)
        codes = run.policy.decide(x, client=name if name == "south" else "other")
        assert not forbidden(x, name)[np.arange(len(x)), codes].any()
        spent += share * _spent(x)[np.arange(len(x)), codes].mean()
    point = run.within_budget()
    assert spent == pytest.approx(point.spending.value, abs=3 * point.spending.standard_error)
    assert spent <= 0.4 + 3 * point.spending.standard_error
    other = run.at_budget(0.6).policy
    x = _contexts(500, 9)
    assert not forbidden(x, "south")[np.arange(500), other.decide(x, client="south")].any()
    assert "south" in str(run.policy.permissions)


def test_a_budget_on_rows_at_hand_obeys_too(run):
    x = _contexts(300, 5)
    policy = run.at_price(0.0).at("south")
    costs = run.study.budget.spent(run.study)
    ranked = RankedRows(policy, Ranking(affordable=Affordable(most=0.5, costs=costs)))
    ranked.see(x, policy.decide(x), slice(None))
    ranked.finish()
    assert not forbidden(x, "south")[np.arange(300), ranked.codes].any()
    assert _spent(x)[np.arange(300), ranked.codes].mean() <= 0.5


def test_trees_within_a_budget_obey():
    plan = TREE_PLAN | {"policy": TREE.model_copy(update={"only": {"south": ("usual", "new")}})}
    found = fedopl.learn(TREE_CLIENTS, costs=TREE_EUROS, budget=0.6, **plan)
    x = np.random.default_rng(3).normal(size=(400, 2))
    assert ACTIONS.index("both") not in found.policy.decide(x, client="south")
    assert ACTIONS.index("both") not in found.at_budget(2.0).policy.decide(x, client="south")
    point = found.within_budget()
    assert point.spending.value <= 0.6 * (1 + 1e-9)
