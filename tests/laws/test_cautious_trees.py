"""Law: a cautious tree is the best less standard errors, federated as pooled, and tells no more."""

from itertools import product

import numpy as np
import pytest
from lying_server import study_with

import fedopl
from fedopl.base.errors import OptionError
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.client.local.cell_tables import inverse_chances
from fedopl.engines.in_process import InProcess
from fedopl.messages.derived_sizes import axis_sizes
from fedopl.messages.message import Axis
from fedopl.policies.trees.nodes import Branch, Leaf, branches_of
from fedopl.report.page import render
from fedopl.results.files.run_folder import load_record, save_record
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.federation import run_study

pytestmark = pytest.mark.usefixtures("without_figures")

CUTS = {"x0": (-0.5, 0.0, 0.5), "x1": (-0.5, 0.0, 0.5)}
SIZES = {"north": 700, "south": 300}
BETA = 1.0


def logged(seed, n_rows, chance=0.02, extra=-1.5, weights=False):
    """Where x0 > 0 the second action is rare, and worth so much more there."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_rows, 2))
    second = np.where(x[:, 0] > 0, chance, 0.5)
    actions = (rng.random(n_rows) < second).astype(int)
    effect = 0.5 * x[:, 1] + extra * (x[:, 0] > 0)
    rewards = x[:, 0] + actions * effect + rng.standard_normal(n_rows)
    given = rng.uniform(0.5, 2, n_rows) if weights else None
    chances = np.column_stack([1 - second, second])
    return fedopl.LoggedData(x, actions, rewards, chances, weights=given)


@pytest.fixture(scope="module")
def federation():
    clients = {n: logged(k, size, weights=True) for k, (n, size) in enumerate(SIZES.items())}
    study = fedopl.Study(
        actions=clients["north"].action_names,
        features=clients["north"].feature_names,
        policy=fedopl.Tree(cuts=CUTS, caution=BETA),
    )
    doors = {
        name: Door(name, data, study, limits=Limits.open(), secret=SEED_ALONE)
        for name, data in clients.items()
    }
    return doors, run_study(Conversation(study, InProcess(doors)))


def worth(parts, chosen, doubts):
    """What these leaves are worth, with the action chosen in each, less standard errors."""
    total = 0.0
    for leaf, action in zip(parts, chosen, strict=True):
        value = sum(share * np.sum(w * s[:, action]) for share, s, w, _ in leaf)
        squared = sum(share**2 * np.sum(w**2 * inv[:, action]) for share, _, w, inv in leaf)
        total += value - np.sqrt(doubts * squared)
    return total


def all_trees():
    """Every tree of two questions on the grid, as functions to leaves, and with which root."""
    for column, cut in product((0, 1), CUTS["x0"]):
        sides = [*product((0, 1), CUTS["x0"])]
        for yes, no in product(sides, sides):
            yield Branch(column, cut, Branch(*yes, Leaf(0), Leaf(1)), Branch(*no, Leaf(2), Leaf(3)))


def leaf_of(node, x):
    if isinstance(node, Leaf):
        return np.full(len(x), node.action)
    yes = x[:, node.column] <= node.cut
    return np.where(yes, leaf_of(node.yes, x), leaf_of(node.no, x))


def test_the_tree_is_the_best_less_standard_errors_of_pooled_rows(federation):
    doors, record = federation
    per_client = {}
    for name, door in doors.items():
        space = door._space
        own = space.training
        weights = space.data.weights[own]
        inverse = inverse_chances(space.data.propensities[own])
        per_client[name] = (
            record.mixture[name],
            space.data.contexts[own],
            space.scores[own],
            weights / weights.sum(),
            inverse,
        )
    noise = BETA**2 * record.tree.doubts.taken.noise(SIZES)
    assert noise == pytest.approx(1.0, rel=0.25)

    def value(node, n_leaves):
        parts = []
        for leaf in range(n_leaves):
            held = []
            for share, x, scores, weights, inverse in per_client.values():
                here = leaf_of(node, x) == leaf
                held.append((share, scores[here], weights[here], inverse[here]))
            parts.append(held)
        best = [max((0, 1), key=lambda a, p=part: worth([p], [a], noise)) for part in parts]
        return worth(parts, best, noise), best

    trees = [(*value(tree, 4), tree) for tree in all_trees()]
    most = max(found for found, _, _ in trees)
    root, places = record.policy.root, iter(range(4))

    def numbered(node):
        if isinstance(node, Leaf):
            return Leaf(next(places))
        return Branch(node.column, node.cut, numbered(node.yes), numbered(node.no))

    drawn = numbered(root)
    found, best = value(drawn, next(places, 4))
    leaves = [leaf.action for leaf in _leaves(root)]
    assert best == leaves
    # Fewer questions may be better: each leaf more has an error of its own.
    assert found >= most - 1e-9
    assert branches_of(root)


def _leaves(node):
    return [node] if isinstance(node, Leaf) else [*_leaves(node.yes), *_leaves(node.no)]


def test_it_is_solved_again_from_its_folder_and_says_what_it_is(federation, tmp_path):
    _, record = federation
    save_record(record, tmp_path / "run")
    loaded = load_record(tmp_path / "run")
    assert str(loaded.resolve(record.study.mixture)) == str(record.policy)
    assert loaded.tree.solve({"north": 1.0, "south": 0.0}).root
    page = render(loaded)
    assert "searched for with caution" in page
    assert "less standard errors" in page


def test_without_caution_nothing_is_said_of_it_and_nothing_is_longer():
    plain = study_with(policy=fedopl.Tree(caution=0))
    assert plain.digest == study_with(policy=fedopl.Tree()).digest
    assert "caution" not in plain.model_dump_json()
    n_actions = plain.n_actions
    assert axis_sizes(plain)[Axis.CELL_NUMBERS] == range(2 + n_actions, 3 + 2 * n_actions)
    cautious = study_with(policy=fedopl.Tree(caution=0.5))
    assert fedopl.Study.model_validate_json(cautious.model_dump_json()) == cautious
    assert cautious.digest != plain.digest


def test_caution_helps_where_the_rare_action_is_bad():
    lost = {}
    x = np.random.default_rng(99).standard_normal((20_000, 2))
    effect = 0.5 * x[:, 1] - 1.5 * (x[:, 0] > 0)
    for seed in range(3):
        clients = {str(k): logged(10 * seed + k, 500, chance=0.002) for k in range(3)}
        for caution in (0.0, 0.5):
            plan = fedopl.Tree(bins=8, caution=caution)
            policy = fedopl.learn(clients, policy=plan, evaluation=0).policy
            regret = np.mean(np.maximum(effect, 0) - effect * policy.decide(x))
            lost.setdefault(caution, []).append(regret)
    assert np.mean(lost[0.5]) < 0.5 * np.mean(lost[0.0])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"policy": {"kind": "tree", "caution": 1, "thresholds": "observed"}}, "use the grid"),
        (
            {
                "policy": fedopl.Tree(caution=1),
                "nuisances": fedopl.NuisancePlan(kind="local", propensity="marginal"),
            },
            "federated outcome models",
        ),
        (
            {"policy": fedopl.Tree(caution=1), "budget": fedopl.Budget(shares={"pill": 0.5})},
            "set caution = 0",
        ),
    ],
)
def test_caution_that_cannot_be_had_is_refused(options, why):
    with pytest.raises(OptionError, match=why):
        study_with(**options)
