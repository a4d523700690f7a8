"""Candidates within a budget: what they spend is told by clients, and the best that keeps to it."""

import numpy as np
import pytest
from test_budgets import ACTIONS, CLIENTS, EUROS, _held_out, _spent

import fedopl
from fedopl import Budget, NuisancePlan
from fedopl.base.errors import OptionError
from fedopl.report.page import render
from fedopl.results.files.run_folder import load_record, save_record
from fedopl.results.spending.priced_policies import corners

pytestmark = pytest.mark.usefixtures("without_figures")


def some_new(x):
    return np.where(x[:, 0] > 0.5, 1, 0)


def many(x):
    return np.where(x[:, 1] > 0, 2, np.where(x[:, 0] > 0, 1, 0))


def wasteful(x):
    return np.where(x[:, 0] < -0.5, 1, 0)


RULES = {"some new": some_new, "many": many, "wasteful": wasteful}
PLAN = {
    "policy": fedopl.Finite(candidates=RULES),
    "evaluation": 0.25,
    "nuisances": NuisancePlan(outcome="ols", kind="local"),
}


@pytest.fixture(scope="module")
def run():
    return fedopl.learn(CLIENTS, costs=EUROS, budget=0.4, **PLAN)


def test_corners_are_what_is_best_at_some_price():
    rng = np.random.default_rng(0)
    for _ in range(50):
        values, costs = rng.normal(size=6).tolist(), rng.integers(0, 5, 6).tolist()
        places, prices = corners(values, costs)
        assert prices == sorted(set(prices))
        assert prices[0] == 0
        assert costs[places[-1]] == min(costs)
        ends = [*prices[1:], prices[-1] + 1]
        for place, low, high in zip(places, prices, ends, strict=True):
            middle = (low + high) / 2
            worth = [v - middle * c for v, c in zip(values, costs, strict=True)]
            assert worth[place] == pytest.approx(max(worth), abs=1e-9)


def test_what_clients_tell_is_what_their_rows_say(run):
    assert run.chosen == "some new"
    assert run.curve.names[run.curve.prices.index(run.within_budget().price)] == "some new"
    assert "wasteful" not in run.curve.names
    for name, told in run.curve.clients.items():
        x, scores = _held_out(run, name)
        row, costs = np.arange(len(x)), _spent(x)
        for place, candidate in enumerate(run.curve.names):
            arm = candidate.removeprefix("everybody gets ")
            alike = np.full(len(x), ACTIONS.index(arm) if arm in ACTIONS else 0)
            codes = RULES[candidate](x) if candidate in RULES else alike
            gain = scores[row, codes] - scores[:, 0]
            assert told.gains[place] == pytest.approx(gain.mean(), abs=1e-9)
            assert told.costs[place] == pytest.approx(costs[row, codes].mean(), abs=1e-9)


def test_the_best_that_keeps_to_a_budget_is_taken_and_lots_are_told(run):
    point = run.within_budget()
    assert point.spending.value <= 0.4 < point.dearer
    assert "Within the budget, at most 0.4 euros per decision, 'some new' gains" in run.verdict
    assert "drawing lots between the two" in run.verdict
    more = run.at_budget(5.0)
    assert more.candidate == "many"
    assert more.policy is None
    least = run.at_budget(0.01)
    assert least.candidate == "everybody gets usual"
    assert set(least.policy.decide(np.zeros((3, 3)))) == {0}
    sure = run.at_budget(0.4, confidence=0.95)
    error = sure.spending.standard_error
    assert sure.spending.value + 1.64 * error <= 0.4 + 1e-9
    with pytest.raises(OptionError, match="at_budget"):
        run.at_price(0.1)


def test_it_is_kept_and_shown(run, tmp_path):
    save_record(run, tmp_path / "run")
    again = load_record(tmp_path / "run")
    assert again.curve == run.curve
    assert again.within_budget().candidate == "some new"
    page = render(again)
    assert "the candidate with the largest value on training rows less" in page
    assert "drawing lots between two candidates" in page


def test_a_cap_on_an_action_and_rules_hold_among_candidates():
    plan = PLAN | {
        "policy": fedopl.Finite(
            candidates=RULES, never=[{"action": "both", "when": "severity > 0.5"}]
        )
    }
    found = fedopl.learn(CLIENTS, budget=Budget(shares={"both": 0.25}), **plan)
    assert found.chosen == "many"  # half of them would get it, were it not for the rule
    assert found.within_budget().spending.value == pytest.approx(0.19, abs=0.04)
    only_arms = plan | {"policy": fedopl.Finite(never=found.study.policy.never)}
    arms = fedopl.learn(CLIENTS, costs=EUROS, budget=0.4, **only_arms)
    assert arms.at_budget(5.0).policy.permissions is not None
