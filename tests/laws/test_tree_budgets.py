"""Trees within budgets: found at the server from sums over cells, and kept to on held-out rows."""

import numpy as np
import pytest
from lying_server import LyingServer, rows, study_with

import fedopl
from fedopl import Budget, Costs, NuisancePlan, OptionError
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE, PrivateDraws
from fedopl.client.scoring.outcome import GivenModels
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.policy_values import N_TREES, Value
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import Refusal
from fedopl.policies.kinds import packed
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import Leaf
from fedopl.report.page import render
from fedopl.results.spending.priced_policies import tree_at
from fedopl.server import price_curves
from fedopl.server.learn_by_fold import learn_by_fold

pytestmark = pytest.mark.usefixtures("without_figures")

ACTIONS = ("usual", "new", "both")
COST = np.array([0.0, 1.0, 3.0])
EUROS = Costs(by_action={"new": 1.0, "both": 3.0}, unit="euros")
TREE = fedopl.Tree(depth=2, bins=8, refine=False, minimum_leaf=5)
PLAN = {"policy": TREE, "nuisances": NuisancePlan(outcome="ols", kind="local")}


def _contexts(n_rows, seed):
    return np.random.default_rng(seed).normal(size=(n_rows, 2))


def _effects(x):
    new = 0.3 + (x[:, 0] > 0)
    both = 0.5 + 1.5 * (x[:, 1] > 0.5) - 0.5 * (x[:, 0] > 0)
    return np.column_stack([np.zeros(len(x)), new, both])


def _client(seed, n_rows=900):
    x, rng = _contexts(n_rows, seed), np.random.default_rng(100 + seed)
    arm = rng.integers(0, 3, n_rows)
    y = _effects(x)[np.arange(n_rows), arm] + rng.normal(size=n_rows)
    names = ("age", "severity")
    return fedopl.LoggedData(x, arm, y, 1 / 3, action_names=ACTIONS, feature_names=names)


CLIENTS = {name: _client(seed) for seed, name in enumerate(("north", "south"))}


@pytest.fixture(scope="module")
def run():
    return fedopl.learn(CLIENTS, costs=EUROS, budget=0.6, **{"evaluation": 0.25, **PLAN})


def test_a_tree_at_a_price_is_the_one_that_is_learned_with_these_costs(run):
    """The same rows with costs subtracted by every client, instead of at the server."""
    for price in run.curve.prices[1:-1:3]:
        costs = {"new": price, "both": 3 * price}
        net = fedopl.learn(CLIENTS, costs=costs, evaluation=0.25, **PLAN)
        assert tree_at(run.tree, run.mixture, price, COST).root == net.policy.root


def test_what_clients_tell_of_trees_is_what_their_rows_say(run):
    assert run.curve.in_steps
    for name, told in run.curve.clients.items():
        space = Workspace(
            CLIENTS[name], run.study, Limits.open(), PrivateDraws(0, name, SEED_ALONE)
        )
        space.keep(space.scored_with(GivenModels(np.empty(0))))
        held_out = space.rows(RowSplit.EVALUATION)
        scores = space.scored.for_evaluation(space.whole).scores[held_out]
        x, row = space.data.contexts[held_out], np.arange(len(scores))
        for place, price in enumerate(run.curve.prices):
            decided = tree_at(run.tree, run.mixture, price, COST).decide(x)
            gain = (scores[row, decided] - scores[:, 0]).mean()
            assert told.gains[place] == pytest.approx(gain, abs=1e-9)
            assert told.costs[place] == pytest.approx(COST[decided].mean(), abs=1e-9)
        done = np.asarray(space.data.actions[held_out])
        assert told.costs[len(run.curve.prices) :] == pytest.approx([*COST, COST[done].mean()])


def test_a_tree_keeps_to_its_budget_on_new_rows(run):
    x = _contexts(50_000, 7)
    before = 0.0
    for budget in (0.2, 0.6, 1.2):
        point = run.at_budget(budget)
        spent = COST[point.policy.decide(x)].mean()
        assert spent < budget + 4 * point.spending.standard_error
        assert point.spending.value <= budget
        gain = _effects(x)[np.arange(len(x)), point.policy.decide(x)].mean()
        assert gain > before
        before = gain
        assert abs(point.gain.value - gain) < 4 * point.gain.standard_error
    assert run.policy.root == run.within_budget().policy.root


def test_it_is_said_that_trees_come_in_steps(run, tmp_path):
    point = run.within_budget()
    assert point.spending.value < 0.6 < point.dearer
    assert "drawing lots between the two" in run.verdict
    assert "by what was learned" not in run.verdict
    assert "by drawing lots between two trees" in render(run)
    run.save(tmp_path)
    kept = fedopl.load_run(tmp_path)
    for budget in (0.2, 0.6, 9.0):
        assert kept.at_budget(budget).policy.root == run.at_budget(budget).policy.root


def test_a_share_of_people_is_kept_to(run):
    capped = fedopl.learn(CLIENTS, budget=Budget(shares={"both": 0.2}, confidence=0.95), **PLAN)
    assert capped.curve.against == "new"  # of those that do not count, the best
    share = (capped.policy.decide(_contexts(50_000, 8)) == 2).mean()
    assert 0.02 < share < 0.2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"policy": fedopl.Tree(depth=3)}, "a tree of depth 1 or 2"),
        (
            {"costs": Costs(by_action={"new": "age"}, unit="euros")},
            "do not contain a column of costs",
        ),
        ({"policy": fedopl.Linear(oracle="direct")}, "only a linear policy"),
    ],
)
def test_trees_that_cannot_have_a_budget_are_refused_in_words(changes, said):
    with pytest.raises(OptionError, match=said):
        fedopl.learn(CLIENTS, **{"costs": EUROS, "budget": 0.6, **PLAN, **changes})


def test_the_curve_across_folds_is_of_trees_that_have_not_seen_each_fold(monkeypatch):
    """At each price of the path of trees, each fold has the best tree of the others' cells."""
    found = {}

    def spy(setting, price):
        found[price] = learn_by_fold(setting, price)
        return found[price]

    monkeypatch.setattr(price_curves, "learn_by_fold", spy)
    run = fedopl.learn(CLIENTS, costs=EUROS, budget=0.6, evaluation="cross-fitted", **PLAN)
    price = run.within_budget().price
    assert price in found
    assert len({tree.numbers().tobytes() for tree in found[price]}) > 1
    for name, told in run.curve.clients.items():
        draws = PrivateDraws(0, name, SEED_ALONE)
        space = Workspace(CLIENTS[name], run.study, Limits.open(), draws)
        space.keep(space.scored_with(GivenModels(np.empty(0))))
        whole = space.scored.for_evaluation(space.whole)
        contexts, row = whole.data.contexts, np.arange(space.n_training)
        assert told.n_rows == space.n_training
        for place, one in enumerate(run.curve.prices):
            pairs = zip(found[one], whole.fold_slices, strict=True)
            own = np.concatenate([tree.decide(contexts[fold]) for tree, fold in pairs])
            gains = whole.scores[row, own] - whole.scores[:, 0]
            assert told.gains[place] == pytest.approx(gains.mean(), abs=1e-9)
            assert told.costs[place] == pytest.approx(COST[own].mean(), abs=1e-9)
            if one == price:
                value = whole.scores[row, own].mean()
                assert run.values.of("learned", name).value == pytest.approx(value, abs=1e-9)


# --- attacks --------------------------------------------------------------------------------------


def test_values_and_a_path_of_trees_are_answered_and_nothing_more():
    plan = fedopl.EvaluationPlan(share=0.5, describe=False)
    study = study_with(budget=Budget(shares={"pill": 0.2}), evaluation=plan, policy="tree")
    server, own = LyingServer(rows(600), study).score(), {"split": RowSplit.EVALUATION}
    trees = [TreePolicy.of(Leaf(0), study)] * N_TREES
    asked, fewer = own | packed(trees, study), own | packed(trees[1:], study)
    assert not isinstance(server.ask(Value, against=0, **asked), Refusal)
    for split in (RowSplit.EVALUATION, RowSplit.ALL):
        told = server.ask(Value, split=split, **packed(trees[:1], study))
        assert not isinstance(told, Refusal)
    assert server.ask(Value, against=1, **asked).reason.name == "ASKED_ALREADY"
    other = LyingServer(rows(600), study).score()
    assert other.ask(Value, against=0, **fewer).reason.name == "MALFORMED"
    of_training = {**asked, "split": RowSplit.TRAINING}
    assert other.ask(Value, against=0, **of_training).reason.name == "MALFORMED"
    without = LyingServer(rows(600), study.model_copy(update={"budget": None})).score()
    assert without.ask(Value, against=0, **own, **packed(trees[:1], study)).reason.name == (
        "MALFORMED"
    )
