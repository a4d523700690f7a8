"""A second look: thresholds move within their bins, to where everybody's rows gain most."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import fedopl
from fedopl import Tree
from fedopl.base.errors import OptionError
from fedopl.client.local.cell_tables import Binning, near_sums
from fedopl.client.rows.chunks import ScoredRows
from fedopl.policies.trees.nodes import Branch, Leaf, branches_of
from fedopl.policies.trees.second_look import window
from fedopl.results.sums.tree_statistics import Searched
from fedopl.server.aggregate.grid_agreement import Counts
from fedopl.server.oracles.tree_search import look_twice

CUTS = (0.13, -0.37)  # where rewards jump
LOCAL = fedopl.NuisancePlan(kind="local", propensity="known")


def rows(n_rows, seed):
    """Two actions; the second is right where x0 and x1 lie on the same side of their cuts."""
    rng = np.random.default_rng(seed)
    contexts, actions = rng.standard_normal((n_rows, 3)), rng.integers(0, 2, n_rows)
    beyond = contexts[:, :2] > CUTS
    right = np.where(beyond[:, 0] == beyond[:, 1], 1.0, -1.0)
    rewards = right * actions + 0.3 * rng.standard_normal(n_rows)
    return fedopl.LoggedData(contexts, actions, rewards, np.full((n_rows, 2), 0.5))


@pytest.fixture(scope="module")
def clients():
    return {"north": rows(1500, 0), "south": rows(900, 1)}


def learned(clients, mixture="empirical", limits="open", **plan):
    policy = Tree(**{"bins": 6, **plan})
    return fedopl.learn(
        clients,
        basis="linear",
        policy=policy,
        mixture=mixture,
        limits=limits,
        nuisances=LOCAL,
        evaluation=0,
    )


def distances(root):
    return [abs(branch.cut - CUTS[branch.column]) for branch in branches_of(root)]


@pytest.mark.parametrize("limits", ["open", "guarded"])
def test_thresholds_come_nearer_to_where_rewards_jump(clients, limits):
    run = learned(clients, limits=limits)
    grid = run.tree.closer.look.root
    assert max(distances(run.policy.root)) < 0.1 < max(distances(grid))
    for before, now in zip(branches_of(grid), branches_of(run.policy.root), strict=True):
        low, high = window(run.tree.grid, before)
        assert low < now.cut < high
    assert [latest.query for latest in run.rounds].count("SumNearThresholds") == 1


def test_every_row_has_a_say_where_a_loop_over_rows_gives_it_one(clients):
    run = learned(clients)
    look, data = run.tree.closer.look, clients["south"]
    rng = np.random.default_rng(2)
    scores, weights = rng.standard_normal((data.n_rows, 2)), rng.uniform(1, 2, data.n_rows)
    scores[::7, 1] = np.nan  # who lacks a score has none
    rows = ScoredRows(contexts=data.contexts, scores=scores, weights=weights)
    binning = Binning(columns=run.study.columns, grid=look.grid)
    found = near_sums([rows], look, binning, np.ones(2, bool))
    np.testing.assert_allclose(found.gains, naive_gains(look, rows), atol=1e-9)
    assert found.gains.any(axis=1).all()


def naive_gains(look, rows):
    """Row by row: the threshold it has a say in, and what yes is worth to it there."""
    found = np.zeros((len(look.questions), look.near.shape[1] + 1))
    for row, score, weight in zip(rows.contexts, rows.scores, rows.weights, strict=True):
        node, place = look.root, 0
        while isinstance(node, Branch):
            low, high = window(look.grid, node)
            if low < row[node.column] <= high:
                gain = score[action(node.yes, row)] - score[action(node.no, row)]
                narrow = np.searchsorted(look.near[place], row[node.column])
                found[place, narrow] += weight * gain if np.isfinite(score).all() else 0.0
                break
            yes = row[node.column] <= node.cut
            place += 1 if yes else 1 + len(branches_of(node.yes))
            node = node.yes if yes else node.no
    return found


def action(node, row):
    while isinstance(node, Branch):
        node = node.yes if row[node.column] <= node.cut else node.no
    return node.action


def test_for_another_mixture_the_same_tree_moves_and_another_stays_on_the_grid(clients):
    run = learned(clients)
    south = run.resolve(fedopl.mixture.skewed("south", 1.0))
    alone = run.tree.restricted(["south"]).solve({"south": 1.0})
    assert south.content() == alone.content()
    elsewhere = replace(run.tree.closer, look=replace(run.tree.closer.look, root=Leaf(0)))
    on_grid = replace(run.tree, closer=elsewhere).solve(run.mixture)
    assert on_grid.root == run.tree.closer.look.root
    with pytest.raises(OptionError, match="refine = false"):
        run.tree.value("north", run.policy)


def test_a_saved_run_solves_again_as_before(clients, tmp_path):
    run = learned(clients)
    run.save(tmp_path / "run")
    again = fedopl.load_run(tmp_path / "run")
    assert again.resolve("uniform").content() == run.resolve("uniform").content()
    assert again.tree.solve(run.mixture).content() == run.policy.content()


def test_a_tree_for_the_client_that_loses_most_gets_its_second_look(clients):
    run = learned(clients, mixture="minimax")
    assert run.policy.root == run.tree.solve(run.mixture).root != run.tree.closer.look.root


def test_leaves_stay_as_large_as_agreed_and_agreed_thresholds_where_they_are(clients):
    run = learned(clients, minimum_leaf=500)
    sizes = np.zeros(len(run.policy.leaves()))
    for data in clients.values():
        decided = replace(run.policy, root=numbered(run.policy.root)).decide(data.contexts)
        sizes += np.bincount(decided, minlength=len(sizes))
    assert sizes.min() >= 500
    agreed = learned(clients, cuts={"x0": (-1.0, 0.0, 1.0)})
    cuts = {b.cut for b in branches_of(agreed.policy.root) if b.column == 0}
    assert cuts <= {-1.0, 0.0, 1.0}
    group = {"column": "x1", "above": 1.0, "actions": ["0"]}
    careful = learned(clients, allowed=[group]).policy
    for data in clients.values():
        oldest = data.contexts[data.contexts[:, 1] > 1.0]
        assert not careful.decide(oldest).any()


def numbered(root):
    """The same questions, with the number of each leaf in place of its action."""
    count = iter(range(99))

    def walked(node):
        if isinstance(node, Leaf):
            return Leaf(next(count))
        return Branch(node.column, node.cut, walked(node.yes), walked(node.no))

    return walked(root)


def test_without_a_quorum_the_tree_stays_on_the_grid(clients):
    run = learned(clients)
    assert run.tree.closer
    on_grid = replace(run.policy, root=run.tree.closer.look.root)
    cuts = {name: np.linspace(-3, 3, 255) for name in run.study.features}
    counts = Counts(cuts, dict.fromkeys(cuts, np.ones(256)))
    searched = Searched(on_grid, replace(run.tree, closer=None))
    nobody = SimpleNamespace(each=lambda *_: {}, has_quorum=lambda _: False)
    assert look_twice([searched], counts, SimpleNamespace(study=run.study), nobody) == [searched]
