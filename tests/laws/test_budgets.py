"""Budgets: what clients tell of prices is what all rows in one place say, and budgets hold."""

from itertools import combinations

import numpy as np
import pytest

import fedopl
from fedopl import Budget, Costs, NuisancePlan, OptionError
from fedopl.base.estimates import Estimate
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE, PrivateDraws
from fedopl.client.scoring.outcome import GivenModels
from fedopl.client.workspace import Workspace
from fedopl.messages.message import RowSplit
from fedopl.report.page import render
from fedopl.results.spending.budget_curve import BudgetCurve, ClientCurve
from fedopl.results.spending.budget_words import point_in_words
from fedopl.server import price_curves
from fedopl.server.learn_by_fold import learn_by_fold

pytestmark = pytest.mark.usefixtures("without_figures")

ACTIONS = ("usual", "new", "both")
EUROS = Costs(by_action={"new": 1.0, "both": "price"}, unit="euros")
PLAN = {"basis": "linear", "nuisances": NuisancePlan(outcome="ols", kind="local")}


def _contexts(n_rows, seed):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.normal(size=(n_rows, 2)), rng.uniform(0.2, 2, n_rows)])


def _effects(x):
    return np.column_stack([np.zeros(len(x)), 0.3 + x[:, 0], 0.8 + x[:, 1]])


def _client(seed, n_rows=900):
    x, rng = _contexts(n_rows, seed), np.random.default_rng(100 + seed)
    arm = rng.integers(0, 3, n_rows)
    y = x[:, 1] + _effects(x)[np.arange(n_rows), arm] + rng.normal(size=n_rows)
    names = ("age", "severity", "price")
    return fedopl.LoggedData(x, arm, y, 1 / 3, action_names=ACTIONS, feature_names=names)


CLIENTS = {name: _client(seed) for seed, name in enumerate(("north", "south"))}


@pytest.fixture(scope="module")
def run():
    return fedopl.learn(CLIENTS, costs=EUROS, budget=0.3, **{"evaluation": 0.25, **PLAN})


def _held_out(run, name):
    """The client's held-out rows and scores, as somebody with all rows would have them."""
    space = Workspace(CLIENTS[name], run.study, Limits.open(), PrivateDraws(0, name, SEED_ALONE))
    space.keep(space.scored_with(GivenModels(np.empty(0))))
    rows = space.rows(RowSplit.EVALUATION)
    return space.data.contexts[rows], space.scored.for_evaluation(space.whole).scores[rows]


def _spent(x):
    return np.column_stack([np.zeros(len(x)), np.ones(len(x)), x[:, 2]])


def test_the_curve_from_clients_is_the_one_of_all_rows(run):
    policy = run.statistics.solve(run.mixture)
    index = policy.parameters
    for name, told in run.curve.clients.items():
        x, scores = _held_out(run, name)
        row, costs = np.arange(len(x)), _spent(x)
        for place, price in enumerate(run.curve.prices):
            wanted = x @ index[:, :-1].T + index[:, -1] - price * costs
            decided = wanted.argmax(axis=1)
            gain = scores[row, decided] - scores[:, 0]
            both = np.cov(gain, costs[row, decided]) / len(x)
            assert told.gains[place] == pytest.approx(gain.mean(), abs=1e-9)
            assert told.costs[place] == pytest.approx(costs[row, decided].mean(), abs=1e-9)
            expected = (both[0, 0], both[0, 1], both[1, 1])
            np.testing.assert_allclose(told.variances[place], expected, atol=1e-10)
    assert run.curve.against == "usual"
    together = run.curve.at(0.3)
    by_hand = {n: np.interp(0.3, c.costs[:64][::-1], c.gains[:64][::-1]) for n, c in _apart(run)}
    mean = sum(run.mixture[name] * gain for name, gain in by_hand.items())
    assert together.at_budget.value == pytest.approx(mean, abs=0.03)


def _apart(run):
    return run.curve.clients.items()


def test_the_curve_across_folds_is_of_policies_that_have_not_seen_each_fold(monkeypatch):
    versions = []

    def spy(setting, price):
        found = learn_by_fold(setting, price)
        versions[:] = found
        return found

    monkeypatch.setattr(price_curves, "learn_by_fold", spy)
    run = fedopl.learn(CLIENTS, costs=EUROS, budget=0.3, evaluation="cross-fitted", **PLAN)
    price = run.within_budget().price
    assert price > 0
    for name, told in run.curve.clients.items():
        draws = PrivateDraws(0, name, SEED_ALONE)
        space = Workspace(CLIENTS[name], run.study, Limits.open(), draws)
        space.keep(space.scored_with(GivenModels(np.empty(0))))
        whole = space.scored.for_evaluation(space.whole)
        x, scores, row = whole.data.contexts, whole.scores, np.arange(900)
        costs = _spent(x)
        assert (told.n_rows, told.of_rows) == (900, 900)

        def at(price, x=x, costs=costs, whole=whole):
            """What versions decide, and in each row the one for its fold."""
            decided = [(p.linear(x) - price * costs).argmax(axis=1) for p in versions]
            own = [decided[fold][rows] for fold, rows in enumerate(whole.fold_slices)]
            return decided, np.concatenate(own)

        for place, one in enumerate(run.curve.prices):
            decided, own = at(one)
            gain = scores[row, own] - scores[:, 0]
            assert told.gains[place] == pytest.approx(gain.mean(), abs=1e-9)
            assert told.costs[place] == pytest.approx(costs[row, own].mean(), abs=1e-9)
            apart = np.mean([decided[a] != decided[b] for a, b in combinations(range(5), 2)])
            factors = np.sqrt([1 + 2 * apart, 1 + 1.5 * apart])
            expected = np.cov(gain, costs[row, own]) / 900 * np.outer(factors, factors)
            found = told.variances[place]
            np.testing.assert_allclose(found, expected[np.triu_indices(2)], atol=1e-10)
        value = scores[row, at(price)[1]].mean()
        assert run.values.of("learned", name).value == pytest.approx(value, abs=1e-9)
    x = _contexts(100_000, 7)
    spent = _spent(x)[np.arange(100_000), run.policy.decide(x)].mean()
    point = run.within_budget()
    assert abs(spent - 0.3) < 4 * point.spending.standard_error
    assert "decision, on all rows." in render(run)


def test_the_policy_keeps_to_the_budget_on_new_rows_and_nearly_nothing_is_lost(run):
    x = _contexts(100_000, 7)
    row, costs, effects = np.arange(len(x)), _spent(x), _effects(x)
    for budget in (0.1, 0.3, 0.6):
        point = run.at_budget(budget)
        decided = point.policy.decide(x)
        spent = costs[row, decided].mean()
        assert abs(spent - budget) < 4 * point.spending.standard_error
        best = _best_possible(effects, costs, budget)
        assert effects[row, decided].mean() > 0.93 * best
        # What the curve says of it is about what it really brings.
        assert abs(point.gain.value - effects[row, decided].mean()) < 4 * point.gain.standard_error
        assert point.one_more == pytest.approx(point.price, rel=0.35)


def _best_possible(effects, costs, budget):
    """Brute force: the true effects at the price that spends just the budget."""
    row, low, high = np.arange(len(effects)), 0.0, 20.0
    for _ in range(40):
        price = (low + high) / 2
        decided = (effects - price * costs).argmax(axis=1)
        low, high = (price, high) if costs[row, decided].mean() > budget else (low, price)
    return effects[row, decided].mean()


def test_the_policy_of_the_run_is_the_one_within_its_budget(run):
    point = run.within_budget()
    assert (run.policy.parameters == point.policy.parameters).all()
    assert point.spending.value == pytest.approx(0.3)
    assert point.gain == run.gains.over("everybody gets usual")
    between = run.at_budget(0.3).gain
    assert abs(point.gain.value - between.value) < between.standard_error
    assert run.recommendation.policy in ("learned", "logging policy")
    said = str(run)
    assert "Within the budget, at most 0.3 euros per decision" in said
    assert "everybody 'new' or 'both' is not within the budget, and what clients" in said
    page = render(run)
    assert "What the budget buys" in page
    assert "drawn by lot" in page
    with pytest.raises(OptionError, match="run the study with it"):
        run.resolve("uniform")


def _generous(seed, n_rows=700):
    """Most people got what helps all of them, and costs more than is allowed from now on."""
    rng = np.random.default_rng(seed)
    x, arm = rng.normal(size=(n_rows, 1)), (rng.random(n_rows) < 0.8).astype(int)
    y = arm * (1.0 + 0.5 * x[:, 0]) + 0.5 * rng.normal(size=n_rows)
    chances = np.tile([0.2, 0.8], (n_rows, 1))
    return fedopl.LoggedData(x, arm, y, chances, action_names=ACTIONS[:2], feature_names=("age",))


def test_nobody_is_told_to_go_on_with_what_the_budget_does_not_afford():
    clients = {name: _generous(seed) for seed, name in enumerate(("north", "south"))}
    run = fedopl.learn(clients, budget=Budget(shares={"new": 0.2}), **PLAN)
    past, spent = run.curve.done()
    assert spent.value == pytest.approx(0.8, abs=0.05)
    assert past.value == pytest.approx(0.8, abs=0.2)
    advice = run.recommendation
    assert advice.policy == "learned"
    assert advice.sentence.startswith("Use the learned policy: compared with giving everybody")
    assert "What was done so far comes to 0.7" in advice.detail
    assert "is worse, expected to lose" in advice.detail
    assert "What was done is beyond the budget: it spends 0.7" in str(run)
    assert "What was done so far, more than the budget" in render(run)
    allowed = fedopl.learn(clients, budget=Budget(shares={"new": 0.9}), **PLAN)
    assert allowed.curve.done()[1].value < 0.9
    assert "beyond the budget" not in str(allowed)


def test_where_a_client_tells_nothing_of_prices_spending_is_not_said_to_be_of_all():
    clients = CLIENTS | {
        "west": _client(7, 40)
    }  # it only learns, as three rows of an action would be held out
    run = fedopl.learn(
        clients, costs=EUROS, budget=0.3, limits=Limits(), **{"evaluation": 0.25, **PLAN}
    )
    assert set(run.curve.clients) == {"north", "south"}
    said = "What is spent is of 'north', 'south' alone, 97% of the mixture: 'west' reported nothing"
    assert said in run.verdict
    assert said.replace("'", "&#39;") in render(run)
    assert said in point_in_words(run, run.at_budget(0.5))
    assert said not in point_in_words(run, run.at_budget(0.5, "north"))


def test_another_budget_asks_nobody_and_survives_the_folder(run, tmp_path):
    run.save(tmp_path)
    kept = fedopl.load_run(tmp_path)
    for budget in (0.05, 0.5, 3.0):
        ours, theirs = run.at_budget(budget), kept.at_budget(budget)
        assert (ours.policy.parameters == theirs.policy.parameters).all()
        assert ours.gain == theirs.gain
    assert not run.at_budget(3.0).is_binding
    sure, plain = run.at_budget(0.3, confidence=0.95), run.at_budget(0.3)
    reach = sure.spending.value + 1.645 * sure.spending.standard_error
    assert reach == pytest.approx(0.3, abs=0.003)
    assert sure.chance_over < 0.06 < plain.chance_over


def test_each_client_has_its_own_price_and_one_policy_keeps_to_all():
    moved = {"north": CLIENTS["north"], "rich": _moved(CLIENTS["south"])}
    budget = Budget(shares={"both": 0.25}, per="each client", between="cheaper")
    run = fedopl.learn(moved, budget=budget, **{"evaluation": 0.25, **PLAN})
    prices = {name: run.at_budget(0.25, name).price for name in moved}
    assert prices["rich"] > prices["north"]
    assert run.within_budget().price == max(prices.values())
    for name in moved:
        assert run.at_budget(0.25, name).spending.value <= 0.25
        share = (run.policy.decide(_held_out_of(run, moved, name)) == 2).mean()
        assert share <= 0.25
    assert "At its own price each could have" in str(run)


def _moved(data):
    """The same client with worse cases."""
    contexts = np.array(data.contexts) + np.array([0.0, 1.0, 0.0])
    rewards = np.array(data.rewards) + np.where(np.array(data.actions) == 2, 1.0, 0.0)
    return fedopl.LoggedData(
        contexts,
        data.actions,
        rewards,
        1 / 3,
        action_names=ACTIONS,
        feature_names=data.feature_names,
    )


def _held_out_of(run, clients, name):
    space = Workspace(clients[name], run.study, Limits.open(), PrivateDraws(0, name, SEED_ALONE))
    return space.data.contexts[space.rows(RowSplit.EVALUATION)]


def test_noise_cannot_make_spending_rise_with_the_price():
    told = ClientCurve(
        n_rows=100,
        of_rows=100,
        degrees_of_freedom=99,
        gains=(1.0, 0.9, 0.8, 0.5, 0.0, 1.0, 0.5),
        costs=(1.0, 0.7, 0.8, 0.3, 0.0, 1.0, 0.5),
        variances=((0.01, 0.001, 0.001),) * 7,
    )
    curve = BudgetCurve(
        prices=(0.0, 0.1, 0.2, 0.4),
        actions=("a", "b"),
        against="a",
        clients={"only": told},
        mixture={"only": 1.0},
    )
    spent = [budget for budget, _ in curve.along()]
    assert spent == pytest.approx([0.3, 0.75, 1.0])
    assert isinstance(curve.at(0.75).gain, Estimate)
    with pytest.raises(fedopl.FederationError, match=r"0\.1 cannot be met"):
        curve.at(0.1)


def test_where_rows_are_alike_no_price_divides_them_and_the_cheaper_policy_is_taken():
    """A quarter of the people each are alike: nothing between them can be spent."""
    clients = {name: _of_flags(seed) for seed, name in enumerate(("north", "south"))}
    euros = Costs(by_action={"new": 1.0}, unit="euros")
    run = fedopl.learn(clients, costs=euros, budget=0.4, **{"evaluation": 0.25, **PLAN})
    x = _of_flags(9, 20_000).contexts
    for budget in (0.1, 0.4, 0.6, 0.9):
        point = run.at_budget(budget)
        spent = (point.policy.decide(x) == 1).mean()
        assert abs(point.spending.value - spent) < 0.01 + 3 * point.spending.standard_error
        assert point.spending.value < budget < point.dearer
    assert "drawing lots between the two, " in run.verdict
    low, high = run.at_budget(0.1), run.at_budget(0.3)
    half = high.spending.value / 2
    assert run.at_budget(half).at_budget.value == pytest.approx(
        (low.gain.value + high.gain.value) / 2, abs=1e-6
    )


def _of_flags(seed, n_rows=900):
    rng = np.random.default_rng(seed)
    x, arm = rng.integers(0, 2, (n_rows, 2)).astype(float), rng.integers(0, 2, n_rows)
    y = arm * (0.2 + x @ [1.0, 0.5]) + 0.5 * rng.normal(size=n_rows)
    return fedopl.LoggedData(
        x, arm, y, 0.5, action_names=ACTIONS[:2], feature_names=("old", "severe")
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"budget": -1.0}, "greater than 0"),
        ({"budget": Budget(most=0.3), "costs": None}, "no action costs anything"),
        ({"costs": {"new": 1.0}}, "say in which unit costs are"),
        ({"budget": None}, "no budget says how much may be spent"),
        ({"budget": Budget(shares={"old": 0.2}), "costs": None}, "'old' is not an action"),
        (
            {"policy": fedopl.Linear(oracle="direct"), "basis": None},
            "only a linear policy by csoaa",
        ),
        (
            {"policy": fedopl.Linear(caution=0.5), "nuisances": "federated"},
            "a cautious policy has no prices",
        ),
        ({"evaluation": 0}, "spending is measured as values are, and none are claimed"),
        ({"diagnose": True}, "joining is judged by policies without a budget"),
        ({"mixture": "minimax"}, "found with policies that ignore the budget"),
        (
            {"costs": Costs(by_action=dict.fromkeys(ACTIONS, 1.0), unit="euros")},
            "even the cheapest action costs 1, more than 0.3",
        ),
    ],
)
def test_budgets_that_cannot_be_are_refused_in_words(changes, said):
    asked = {"costs": EUROS, "budget": 0.3, **PLAN, **changes}
    with pytest.raises(OptionError, match=said):
        fedopl.learn(CLIENTS, **asked)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "say either most"),
        ({"most": 1.0, "shares": {"new": 0.1}}, "say either most"),
        ({"shares": {"new": 0.0}}, "expected a share above 0 and up to 1, came 0"),
        ({"shares": {"new": 1.2}}, "expected a share above 0 and up to 1, came 1.2"),
        ({"shares": {"new": 0.1, "both": 0.1}}, "a budget is of one action"),
        ({"most": 1.0, "confidence": 0.2}, "greater than or equal to 0.5"),
    ],
)
def test_a_plan_says_one_budget(fields, said):
    with pytest.raises(OptionError, match=said):
        Budget(**fields)
