"""Given the sums, the search finds what trying every tree on every row would find."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.grid import Grid, Group, Rules
from fedopl.policies.trees.nodes import Branch, Leaf
from fedopl.policies.trees.search import best_tree


def cells_of(bins, scores, grid, known=None):
    """Sums by brute force: bins (n_rows, n_columns), scores (n_rows, n_actions)."""
    known = np.ones(scores.shape, bool) if known is None else known
    by_row = np.column_stack([np.ones((len(bins), 2)), np.where(known, scores, 0.0), known])
    numbers = np.zeros((grid.n_cells, by_row.shape[1]))
    for (first, second), table in grid.tables.items():
        cell = bins[:, first]
        if first != second:
            cell = cell * grid.n_bins[second] + bins[:, second]
        np.add.at(numbers[table], cell, by_row)
    return numbers if not known.all() else numbers[:, : 2 + scores.shape[1]]


def says_yes(bins, grid, column, place):
    return bins[:, column] == place if grid.is_level[column] else bins[:, column] <= place


def splits_of(grid):
    return [(c, s) for c in range(grid.n_columns) for s in range(len(grid.cuts[c]))]


def leaf_values(problem, rows, path):
    """Each action's value in a leaf: rows without a score count as the others on average."""
    if rows.sum() < problem.rules.minimum_leaf:
        return np.full(problem.scores.shape[1], -np.inf)
    known = problem.known[rows]
    totals = np.where(known, problem.scores[rows], 0.0).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = np.where(known.any(axis=0), totals * rows.sum() / known.sum(axis=0), -np.inf)
    for group in problem.rules.groups:
        if all(group.possible[p, side] for c, p, side in path if c == group.column):
            values = np.where(group.forbidden, -np.inf, values)
    return values


def brute_force(problem, depth, rows=None, path=()):
    """The value of the best of all trees."""
    rows = np.ones(len(problem.bins), bool) if rows is None else rows
    best = leaf_values(problem, rows, path).max()
    if depth == 0:
        return best
    for column, place in splits_of(problem.grid):
        yes = says_yes(problem.bins, problem.grid, column, place)
        value = sum(
            brute_force(problem, depth - 1, rows & answer, (*path, (column, place, side)))
            for side, answer in enumerate((yes, ~yes))
        )
        best = max(best, value - problem.rules.split_cost)
    return best


def value_of(node, problem, rows, path=()):
    """What a tree that was found is really worth."""
    if isinstance(node, Leaf):
        return leaf_values(problem, rows, path)[node.action]
    place = problem.grid.cuts[node.column].index(node.cut)
    yes = says_yes(problem.bins, problem.grid, node.column, place)
    below = (
        value_of(below, problem, rows & answer, (*path, (node.column, place, side)))
        for side, (below, answer) in enumerate(((node.yes, yes), (node.no, ~yes)))
    )
    return sum(below) - problem.rules.split_cost


@dataclass
class Problem:
    bins: np.ndarray
    scores: np.ndarray
    known: np.ndarray
    grid: Grid
    rules: Rules


@st.composite
def groups(draw, grid, n_actions):
    column = draw(st.integers(0, grid.n_columns - 1))
    splits = len(grid.cuts[column])
    possible = np.array(
        draw(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=splits, max_size=splits)),
        bool,
    ).reshape(splits, 2)
    forbidden = np.zeros(n_actions, bool)
    forbidden[draw(st.integers(0, n_actions - 1))] = True
    return Group(column, possible, forbidden)


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
    grid = Grid(cuts, is_level)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    bins = np.column_stack([rng.integers(0, size, n_rows) for size in sizes])
    scores = rng.integers(-4, 5, (n_rows, n_actions)).astype(float)
    known = np.ones(scores.shape, bool)
    if draw(st.booleans()):
        known = rng.random(scores.shape) < 0.7
    rules = Rules(
        n_actions=n_actions,
        minimum_leaf=float(draw(st.integers(1, 5))),
        split_cost=draw(st.sampled_from([0.0, 0.5, 2.0])),
        groups=tuple(draw(st.lists(groups(grid, n_actions), max_size=2))),
    )
    return Problem(bins, scores, known, grid, rules)


@settings(max_examples=400, deadline=None)
@given(problems(), st.integers(0, 2))
def test_the_best_tree_is_the_best_of_all_trees(problem, depth):
    cells = cells_of(problem.bins, problem.scores, problem.grid, problem.known)
    found = best_tree(cells, problem.grid, depth, problem.rules)
    expected = brute_force(problem, depth)
    assert found.value == pytest.approx(expected)
    if np.isfinite(expected):
        everybody = np.ones(len(problem.bins), bool)
        assert value_of(found.node, problem, everybody) == pytest.approx(expected)


def test_a_tie_goes_to_fewer_splits_and_to_what_comes_first():
    bins = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    grid = Grid(((0.5,), (0.5,)), (False, False))
    rules = Rules(n_actions=2)
    nothing = np.zeros((4, 2))
    assert best_tree(cells_of(bins, nothing, grid), grid, 2, rules).node == Leaf(0)
    either = np.where(
        bins.all(axis=1)[:, None] | ~bins.any(axis=1)[:, None], [[1.0, 0]], [[0, 1.0]]
    )
    found = best_tree(cells_of(bins, either, grid), grid, 2, rules)
    assert isinstance(found.node, Branch)
    assert found.node.column == 0
    assert found.value == 4


def test_of_equal_trees_the_smaller_one_is_taken():
    """Splitting on the first column, then the same on both sides, is no better than the second."""
    bins = np.array([[0, 0], [0, 1], [1, 0], [1, 1]] * 3)
    scores = np.where(bins[:, [1]] == 0, [[1.0, 0.0]], [[0.0, 1.0]])
    grid = Grid(((0.5,), (0.5,)), (False, False))
    found = best_tree(cells_of(bins, scores, grid), grid, 2, Rules(n_actions=2))
    assert found.node == Branch(1, 0.5, Leaf(0), Leaf(1))
    assert found.value == pytest.approx(12)


def test_rounding_does_not_split():
    """Whoever splits gets the same sum in another order: that is not better."""
    rng = np.random.default_rng(0)
    bins = rng.integers(0, 8, (500, 3))
    scores = np.column_stack([1e6 + rng.normal(size=500), rng.normal(size=500)])
    grid = Grid((tuple(range(7)),) * 3, (False,) * 3)
    assert best_tree(cells_of(bins, scores, grid), grid, 2, Rules(n_actions=2)).node == Leaf(0)


def test_a_tree_decides_as_its_questions_say():
    policy = TreePolicy(
        Branch(0, 1.5, Leaf(1), Branch(1, 0.0, Leaf(0), Leaf(2))), ("a", "b", "c"), ("x", "y")
    )
    contexts = [[1.0, 5.0], [1.5, -1.0], [2.0, 0.0], [2.0, 0.1]]
    assert policy.names(contexts).tolist() == ["b", "b", "a", "c"]
    assert (policy.depth, len(policy.leaves())) == (2, 3)
    assert policy.question(policy.root) == "x ≤ 1.5"
