"""Law: where values are cross-fitted, a site without outcomes is told of by fold, too."""

from itertools import combinations

import numpy as np
import pytest
from test_joint_balance_of_sources import APART
from test_new_site import ACTIONS, CLIENTS, THERE, contexts, logged, means_of

import fedopl
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.engines.in_process import InProcess
from fedopl.policies.trees.nodes import Branch, Leaf
from fedopl.report.page import render
from fedopl.server import policy_comparison
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.federation import run_study
from fedopl.server.learn_by_fold import learn_by_fold
from fedopl.server.target import value_there
from fedopl.solvers.entropy_balance import balance
from fedopl.study.plans import EvaluationPlan, TargetPlan
from fedopl.study.study import Study

pytestmark = pytest.mark.usefixtures("without_figures")

N_FOLDS = 5
PAIRS = list(combinations(range(N_FOLDS), 2))
NAMES = {"action_names": ACTIONS, "feature_names": THERE.feature_names}


def beyond(slope):
    """A candidate close to the best, of which folds choose different ones."""
    return fedopl.LinearPolicy(np.array([[1.0, 0, 0, 0], [0, slope, 0, 0.3]]), **NAMES)


STEP = fedopl.TreePolicy(Branch(0, 0.3, Leaf(1), Leaf(0)), ACTIONS, THERE.feature_names)
CANDIDATES = {
    f"slope {slope}": beyond(slope) for slope in (0.4, 0.44, 0.46, 0.48, 0.52, 0.54, 0.56, 0.6)
}
POLICIES = {
    "linear": fedopl.Linear(precision="rows"),
    "tree": fedopl.Tree(depth=2, bins=6),
    "candidates": fedopl.Finite(candidates={**CANDIDATES, "step": STEP}),
}


class InOnePlace:
    """Everybody's rows and scores, and what is learned from those outside each fold."""

    def __init__(self, clients, policy, how, monkeypatch):
        trees = []

        def spy(setting, price):
            trees.append(learn_by_fold(setting, price))
            return trees[-1]

        monkeypatch.setattr(policy_comparison, "learn_by_fold", spy)
        self.study = Study(
            actions=ACTIONS,
            features=THERE.feature_names,
            policy=POLICIES[policy],
            evaluation=EvaluationPlan(kind="cross-fitted"),
            target=TargetPlan(client="new", balance=how),
        )
        rows = {**clients, "new": THERE.as_rows(ACTIONS)}
        doors = {
            name: Door(name, data, self.study, secret=SEED_ALONE) for name, data in rows.items()
        }
        named = self.study.policy.named
        self.record = run_study(Conversation(self.study, InProcess(doors)), policies=named)
        assert not self.record.refusals
        self.spaces = {name: doors[name]._space for name in clients}
        self.wholes = {
            name: space.scored.for_evaluation(space.whole) for name, space in self.spaces.items()
        }
        self.models = [self.squares(fold) for fold in range(N_FOLDS)]
        (found,) = trees
        self.given = [named.get(one, one) for one in found]
        self.is_linear = policy == "linear"
        self.of_values = 1.5 if self.is_linear else 2.0

    def squares(self, fold):
        """Least squares of the scores outside a fold, where clients count by all of their rows."""
        terms, scores = [], []
        for space in self.spaces.values():
            whole = space.whole
            rows = whole.folds.of_row != fold
            root = np.sqrt(len(rows) / rows.sum())
            terms.append(with_one(whole.data.contexts[rows]) * root)
            scores.append(whole.scores[rows] * root)
        return np.linalg.lstsq(np.vstack(terms), np.vstack(scores), rcond=None)[0]

    def versions(self, contexts):
        """By fold, what models say (n_rows, n_actions), and what the policy decides."""
        said = [with_one(contexts) @ models for models in self.models]
        if not self.is_linear:
            return said, np.array([one.decide(contexts) for one in self.given])
        return said, np.array([own.argmax(axis=1) for own in said])

    def beyond_models(self, name):
        """A source's contexts, what scores have beyond models, and all that versions decide."""
        whole = self.wholes[name]
        contexts, row = whole.data.contexts, np.arange(len(whole.scores))
        said, decided = self.versions(contexts)
        rest = np.empty((len(row), 3))
        for fold, rows in enumerate(whole.fold_slices):
            apart = whole.scores[rows] - said[fold][rows]
            own = decided[fold][rows]
            rest[rows] = np.column_stack([apart[np.arange(len(own)), own], apart])
        return contexts, rest, decided

    def at_target(self):
        """What models say there of the policy and of actions, on average over versions."""
        said, decided = self.versions(THERE.contexts)
        row = np.arange(len(THERE.contexts))
        by_fold = [np.column_stack([s[row, d], s]) for s, d in zip(said, decided, strict=True)]
        return np.mean(by_fold, axis=0)

    def told(self):
        found = self.record.target
        arms = [f"everybody gets {action}" for action in ACTIONS]
        values = [found.values[name] for name in (self.record.valued_as, *arms)]
        gains = [found.gains[arm] for arm in arms]
        return np.array([(one.value, one.standard_error) for one in [*values, *gains]]).T


def with_one(contexts):
    return np.column_stack([contexts, np.ones(len(contexts))])


CONTRASTS = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, -1, 0], [1, 0, -1]])


def variances(covariances, share, of_values):
    """Of the contrasts, of which those of the policy are larger as versions differ."""
    plain = np.einsum("ci,ij,cj->c", CONTRASTS, covariances, CONTRASTS)
    return plain * (1 + share * np.array([of_values, 0, 0, 2.0, 2.0]))


def share_apart(decided, weights):
    return np.mean([weights @ (decided[one] != decided[other]) for one, other in PAIRS])


MOMENTS = THERE.contexts.mean(axis=0), (THERE.contexts**2).mean(axis=0)


@pytest.mark.parametrize("policy", POLICIES)
def test_each_source_is_valued_fold_by_fold_in_all_of_its_rows(policy, monkeypatch):
    place = InOnePlace(CLIENTS, policy, "each", monkeypatch)
    there, parts = place.at_target(), []
    for name in CLIENTS:
        rows, rest, decided = place.beyond_models(name)
        weights = balance(rows, *MOMENTS).weights
        moved = weights[:, None] * (rest - weights @ rest) / (1 - weights[:, None])
        share = share_apart(decided, weights)
        assert share > 0
        own = variances(moved.T @ moved, share, place.of_values)
        parts.append((1 / np.sum(weights**2), weights @ rest, own))
    total = sum(n_rows for n_rows, _, _ in parts)
    about = (there - there.mean(axis=0)) / (len(there) - 1)
    values = there.mean(axis=0) + sum(n / total * rest for n, rest, _ in parts)
    squares = variances(about.T @ about, 0.0, 0.0)
    squares = squares + sum((n / total) ** 2 * own for n, _, own in parts)
    expected = np.stack([CONTRASTS @ values, np.sqrt(squares)])
    assert place.told() == pytest.approx(expected, rel=1e-7)  # as what is asked has eight digits
    assert place.record.target.effective_rows == pytest.approx(total)
    assert [one.n_rows for one in place.record.target.sources] == [500] * 3


@pytest.mark.parametrize("policy", POLICIES)
def test_all_sources_together_are_valued_fold_by_fold(policy, monkeypatch):
    monkeypatch.setattr(value_there, "NEAR_ENOUGH", 1e-7)
    monkeypatch.setattr(value_there, "_NEARER", 1.0)
    place = InOnePlace(APART, policy, "joint", monkeypatch)
    there = place.at_target()
    rows, rest, decided = zip(*map(place.beyond_models, APART), strict=True)
    own = np.concatenate([np.full(len(some), 1.0) for some in rows])
    weights = balance(np.vstack(rows), *MOMENTS, own).weights
    rest, share = np.vstack(rest), share_apart(np.hstack(decided), weights)
    moved = weights[:, None] * (rest - weights @ rest) / (1 - weights[:, None])
    about = (there - there.mean(axis=0)) / (len(there) - 1)
    values = there.mean(axis=0) + weights @ rest
    squares = variances(about.T @ about, 0.0, 0.0)
    squares = squares + variances(moved.T @ moved, share, place.of_values)
    assert place.told()[0] == pytest.approx(CONTRASTS @ values, abs=2e-3)
    assert place.told()[1] == pytest.approx(np.sqrt(squares), rel=5e-3)


def true_value(policies, x):
    row = np.arange(len(x))
    return np.mean([means_of(x)[row, policy.decide(x)].mean() for policy in policies])


N_RUNS = 40


@pytest.mark.parametrize("how", ["each", pytest.param("joint", marks=pytest.mark.slow_law)])
def test_intervals_cover_what_the_way_of_learning_is_worth_there(how, monkeypatch):
    """Few rows, so that policies of folds differ."""
    versions, covered, claimed = [], 0, 0

    def keeping(*given):
        versions.append(learn_by_fold(*given))
        return versions[-1]

    monkeypatch.setattr(policy_comparison, "learn_by_fold", keeping)
    x = np.random.default_rng(1).standard_normal((20_000, 3)) + 0.4
    for seed in range(N_RUNS):
        clients = {name: logged(10 * seed + place, 120) for place, name in enumerate("abc")}
        there = contexts(200, seed=1000 + seed)
        options = {"basis": "linear", "evaluation": "cross-fitted", "balance": how}
        run = fedopl.learn(clients, target=there, seed=seed, **options)
        if run.target.values:  # few rows may look like the target
            low, high = run.target.values["learned"].interval()
            covered += low <= true_value(versions[-1], x) <= high
            claimed += 1
    print(how, covered, claimed)
    assert claimed > 0.9 * N_RUNS
    # Of 40 runs that cover 95 %, at least 35 do in all but one of a hundred such tests.
    assert covered >= 0.875 * claimed


@pytest.mark.parametrize("how", ["each", "joint"])
def test_no_page_speaks_of_rows_held_out(how):
    clients = {"a": logged(1), "b": logged(2)}
    options = {"basis": "linear", "evaluation": "cross-fitted", "balance": how}
    run = fedopl.learn(clients, target=THERE, **options)
    for said in (render(run), str(run)):
        assert "held-out" not in said
        assert "held out" not in said
