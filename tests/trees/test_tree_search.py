"""Given the sums, the search finds what trying every tree on every row would find."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedopl.policies.tree import Leaf, Split, TreePolicy
from fedopl.tree_search import Cells, Grid, Rules, best_tree


def cells_of(bins, scores, grid):
    """Sums by brute force: bins (n_rows, n_columns), scores (n_rows, n_actions)."""
    n_columns, n_actions = bins.shape[1], scores.shape[1]
    most = max(grid.n_bins(column) for column in range(n_columns))
    sums = np.zeros((n_columns, n_columns, most, most, n_actions))
    counts = np.zeros((n_columns, n_columns, most, most))
    for first, second in itertools.product(range(n_columns), repeat=2):
        np.add.at(sums[first, second], (bins[:, first], bins[:, second]), scores)
        np.add.at(counts[first, second], (bins[:, first], bins[:, second]), 1)
    return Cells(sums=sums, counts=counts)


def says_yes(bins, grid, column, place):
    return bins[:, column] == place if grid.is_level[column] else bins[:, column] <= place


def splits_of(grid):
    return [(c, s) for c in range(grid.n_columns) for s in range(grid.n_splits(c))]


def leaf_value(scores, rows, rules):
    if rows.sum() < rules.minimum_leaf:
        return -np.inf
    totals = scores[rows].sum(axis=0)
    return totals.max() if rules.actions is None else totals[rules.actions].max()


def brute_force(bins, scores, grid, depth, rules, rows=None):
    rows = np.ones(len(bins), bool) if rows is None else rows
    best = leaf_value(scores, rows, rules)
    if depth == 0:
        return best
    for column, place in splits_of(grid):
        yes = says_yes(bins, grid, column, place)
        value = sum(
            brute_force(bins, scores, grid, depth - 1, rules, rows & side) for side in (yes, ~yes)
        )
        best = max(best, value - rules.split_cost)
    return best


def value_of(node, bins, scores, grid, rules, rows):
    """What a tree that was found is really worth."""
    if isinstance(node, Leaf):
        assert rows.sum() >= rules.minimum_leaf
        assert rules.actions is None or rules.actions[node.action]
        return scores[rows, node.action].sum()
    place = grid.cuts[node.column].index(node.cut)
    yes = says_yes(bins, grid, node.column, place)
    below = (
        value_of(n, bins, scores, grid, rules, rows & s)
        for n, s in ((node.yes, yes), (node.no, ~yes))
    )
    return sum(below) - rules.split_cost


@st.composite
def problems(draw):
    n_rows, n_columns = draw(st.integers(1, 25)), draw(st.integers(1, 4))
    n_actions = draw(st.integers(2, 3))
    is_level = tuple(draw(st.booleans()) for _ in range(n_columns))
    sizes = [draw(st.integers(1, 4)) for _ in range(n_columns)]
    cuts = tuple(
        tuple(float(cut) for cut in range(size if level else size - 1))
        for size, level in zip(sizes, is_level, strict=True)
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    bins = np.column_stack([rng.integers(0, size, n_rows) for size in sizes])
    scores = rng.integers(-4, 5, (n_rows, n_actions)).astype(float)
    actions = None
    if draw(st.booleans()):
        actions = np.array([True] + [draw(st.booleans()) for _ in range(n_actions - 1)])
    rules = Rules(
        minimum_leaf=float(draw(st.integers(1, 5))),
        split_cost=draw(st.sampled_from([0.0, 0.5, 2.0])),
        actions=actions,
    )
    return bins, scores, Grid(cuts=cuts, is_level=is_level), rules


@settings(max_examples=300)
@given(problems(), st.integers(0, 2))
def test_the_best_tree_is_the_best_of_all_trees(problem, depth):
    bins, scores, grid, rules = problem
    found = best_tree(cells_of(bins, scores, grid), grid, depth, rules)
    expected = brute_force(bins, scores, grid, depth, rules)
    assert found.value == pytest.approx(expected)
    if np.isfinite(expected):
        everybody = np.ones(len(bins), bool)
        worth = value_of(found.node, bins, scores, grid, rules, everybody)
        assert worth == pytest.approx(expected)


def test_a_tie_goes_to_fewer_splits_and_to_what_comes_first():
    bins = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    grid = Grid(cuts=((0.5,), (0.5,)), is_level=(False, False))
    nothing = np.zeros((4, 2))
    assert best_tree(cells_of(bins, nothing, grid), grid, 2, Rules()).node == Leaf(0)
    either = np.where(
        bins.all(axis=1)[:, None] | ~bins.any(axis=1)[:, None], [[1.0, 0]], [[0, 1.0]]
    )
    found = best_tree(cells_of(bins, either, grid), grid, 2, Rules())
    assert isinstance(found.node, Split)
    assert found.node.column == 0
    assert found.value == 4


def test_a_tree_decides_as_its_questions_say():
    policy = TreePolicy(
        Split(0, 1.5, Leaf(1), Split(1, 0.0, Leaf(0), Leaf(2))), ("a", "b", "c"), ("x", "y")
    )
    contexts = [[1.0, 5.0], [1.5, -1.0], [2.0, 0.0], [2.0, 0.1]]
    assert policy.names(contexts).tolist() == ["b", "b", "a", "c"]
    assert (policy.depth, len(policy.leaves())) == (2, 3)
    assert policy.question(policy.root) == "x ≤ 1.5"
