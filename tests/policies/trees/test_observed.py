"""Over every observed threshold, the search finds what trying every tree would find."""

import sys
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedopl.base.errors import OptionError
from fedopl.client.local.local_tree import best_observed_tree
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.grid import Grid, Rules
from fedopl.policies.trees.nodes import Branch, Leaf, depth_of, nodes_of
from fedopl.policies.trees.search import best_tree

needs_numba = pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")


def cuts_of(column, is_level):
    distinct = np.unique(column)
    return tuple(distinct if is_level else (distinct[:-1] + distinct[1:]) / 2)


def best_on_grid(values, is_level, scores, *, depth, minimum_leaf=1, split_cost=0.0):
    """What the search from sums finds on a grid of every observed threshold and level."""
    cuts = tuple(cuts_of(column, level) for column, level in zip(values.T, is_level, strict=True))
    grid = Grid(cuts, is_level)
    rules = Rules(n_actions=scores.shape[1], minimum_leaf=minimum_leaf, split_cost=split_cost)
    return best_tree(cells_of(values, scores, grid), grid, depth, rules)


def cells_of(values, scores, grid):
    bins = [np.unique(column, return_inverse=True)[1] for column in values.T]
    numbers = np.empty((grid.n_cells, 2 + scores.shape[1]))
    for (first, second), table in grid.tables.items():
        cell = bins[first] if first == second else bins[first] * grid.n_bins[second] + bins[second]
        n_cells = table.stop - table.start
        for part, weights in enumerate((np.ones(len(cell)), np.ones(len(cell)), *scores.T)):
            numbers[table, part] = np.bincount(cell, weights, minlength=n_cells)
    return numbers


def says_yes(values, is_level, column, cut):
    return values[:, column] == cut if is_level[column] else values[:, column] <= cut


def brute_force(values, is_level, scores, depth, minimum_leaf, split_cost):
    """What the best of all trees is worth, by trying each on the rows."""
    best = scores.sum(axis=0).max() if len(scores) >= minimum_leaf else -np.inf
    for column in range(len(is_level) if depth else 0):
        for cut in cuts_of(values[:, column], is_level[column]):
            yes = says_yes(values, is_level, column, cut)
            both = sum(
                brute_force(values[s], is_level, scores[s], depth - 1, minimum_leaf, split_cost)
                for s in (yes, ~yes)
            )
            best = max(best, both - split_cost)
    return best


def leaf_sizes(node, values, is_level):
    if isinstance(node, Leaf):
        return [len(values)]
    yes = says_yes(values, is_level, node.column, node.cut)
    return leaf_sizes(node.yes, values[yes], is_level) + leaf_sizes(node.no, values[~yes], is_level)


def questions_of(node):
    return [(split.column, split.cut) for split in nodes_of(node) if isinstance(split, Branch)]


def normal_problem(n_rows, n_columns, n_actions):
    """Real numbers, each observed once but for a column of three levels and a rounded one."""
    rng = np.random.default_rng(n_rows)
    values = rng.normal(size=(n_rows, n_columns))
    values[:, 0] = rng.integers(0, 3, n_rows)
    values[:, 1] = values[:, 1].round(1)
    return values, (True,) + (False,) * (n_columns - 1), rng.normal(size=(n_rows, n_actions))


@st.composite
def problems(draw, most_rows):
    """Whole numbers, so that sums are exact and there are ties."""
    n_rows, n_columns = draw(st.integers(1, most_rows)), draw(st.integers(1, 3))
    sizes = [draw(st.sampled_from([1, 2, 3, 5, 50])) for _ in range(n_columns)]
    is_level = tuple(size < 10 and draw(st.booleans()) for size in sizes)
    n_actions = draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = np.column_stack([rng.integers(0, size, n_rows) for size in sizes]).astype(float)
    return values, is_level, rng.integers(-4, 5, (n_rows, n_actions)).astype(float)


rules = st.fixed_dictionaries(
    {
        "depth": st.integers(0, 2),
        "minimum_leaf": st.integers(1, 5),
        "split_cost": st.sampled_from([0.0, 0.5, 2.0]),
    }
)


@needs_numba
@settings(max_examples=300, deadline=None)
@given(problems(most_rows=14), rules)
def test_the_best_tree_is_the_best_of_all_trees(problem, rules):
    values, is_level, _ = problem
    found = best_observed_tree(*problem, **rules)
    assert found.value == brute_force(*problem, **rules)
    assert depth_of(found.node) <= rules["depth"]
    if np.isfinite(found.value):
        assert min(leaf_sizes(found.node, values, is_level)) >= rules["minimum_leaf"]


@needs_numba
@settings(max_examples=300, deadline=None)
@given(problems(most_rows=80), rules)
def test_it_is_the_tree_that_is_best_on_a_grid_of_all_thresholds(problem, rules):
    found, expected = best_observed_tree(*problem, **rules), best_on_grid(*problem, **rules)
    assert found.node == expected.node
    assert found.value == pytest.approx(expected.value)


@needs_numba
@pytest.mark.parametrize("minimum_leaf", [1, 7, 300])
@pytest.mark.parametrize("depth", [1, 2])
def test_it_is_so_too_for_many_rows_with_scores_that_round(depth, minimum_leaf):
    problem = normal_problem(2000, 3, 3)
    found = best_observed_tree(*problem, depth=depth, minimum_leaf=minimum_leaf)
    expected = best_on_grid(*problem, depth=depth, minimum_leaf=minimum_leaf)
    assert found.node == expected.node
    assert found.value == pytest.approx(expected.value, rel=1e-9)
    assert min(leaf_sizes(found.node, *problem[:2])) >= minimum_leaf


@needs_numba
@settings(max_examples=50, deadline=None)
@given(problems(most_rows=40), st.integers(0, 2))
def test_its_value_is_what_its_decisions_earn(problem, depth):
    values, is_level, scores = problem
    found = best_observed_tree(values, (False,) * len(is_level), scores, depth=depth)
    features = tuple(f"x{column}" for column in range(values.shape[1]))
    policy = TreePolicy(found.node, tuple("abcd"[: scores.shape[1]]), features)
    assert found.value == scores[np.arange(len(scores)), policy.decide(values)].sum()


@needs_numba
@settings(max_examples=300, deadline=None)
@given(problems(most_rows=30), st.integers(1, 5), st.data())
def test_the_best_stump_is_known_after_each_group_of_rows_that_enters(problem, minimum_leaf, data):
    from fedopl.client.local.observed_kernels import best_stumps

    values, _, scores = problem
    ends = np.array(sorted(data.draw(st.sets(st.integers(1, len(scores)), min_size=1))))
    ranks = values.T.astype(np.int32)
    n_ranks, totals = np.full(len(ranks), 50), scores.cumsum(axis=0)[ends - 1]
    own_scores, own_totals = (np.ascontiguousarray(part.T) for part in (scores, totals))
    found = best_stumps(ranks, n_ranks, own_scores, own_totals, ends, minimum_leaf)
    for end, own in zip(ends, found, strict=True):
        entered = values[:end], (False,) * len(ranks), scores[:end]
        best = brute_force(*entered, depth=1, minimum_leaf=minimum_leaf, split_cost=0.0)
        leaf = scores[:end].sum(axis=0).max() if end >= minimum_leaf else -np.inf
        assert max(own, leaf) == best


@needs_numba
@settings(max_examples=300, deadline=None)
@given(problems(most_rows=30), st.integers(1, 2))
def test_a_tie_goes_to_what_comes_first_however_sums_are_rounded(problem, depth):
    values, is_level, scores = problem
    whole = best_observed_tree(values, is_level, scores, depth=depth)
    tenths = best_observed_tree(values, is_level, scores / 10, depth=depth)
    assert questions_of(tenths.node) == questions_of(whole.node)


@needs_numba
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_where_a_split_adds_nothing_there_is_none(depth):
    one_value, row = np.full((50, 2), 3.0), np.array([[1.0, 2.0]])
    assert best_observed_tree(row, (False, True), row, depth=depth).node == Leaf(1)
    uneven = np.random.default_rng(0).normal(size=(50, 2))
    unsplit = best_observed_tree(one_value, (False, True), uneven, depth=depth)
    assert unsplit.node == Leaf(int(uneven.sum(axis=0).argmax()))
    same = np.repeat(uneven[:, :1] / 3, 3, axis=1)  # one action is as good as another in each row
    assert best_observed_tree(uneven, (False, False), same, depth=depth).node == Leaf(0)


@needs_numba
def test_too_few_rows_are_a_leaf_worth_nothing_at_all():
    found = best_observed_tree(np.eye(3), (False,) * 3, np.eye(3), depth=2, minimum_leaf=4)
    assert (found.node, found.value) == (Leaf(0), -np.inf)


@needs_numba
@pytest.mark.parametrize("low", [1.0, np.nextafter(1.0, 2.0), 2.0**1023, -(2.0**1023)])
def test_a_cut_lies_between_neighbours_however_near_or_far_they_are(low):
    for high in (np.nextafter(low, np.inf), np.nextafter(np.inf, 0)):
        values = np.array([[low], [high]])
        found = best_observed_tree(values, (False,), np.eye(2), depth=1)
        assert found.node == Branch(0, found.node.cut, Leaf(0), Leaf(1))
        assert low <= found.node.cut < high


@needs_numba
def test_the_number_of_threads_changes_nothing(monkeypatch):
    problem = normal_problem(500, 5, 3)
    monkeypatch.setattr("fedopl.client.local.local_tree.os.cpu_count", lambda: 1)
    alone = best_observed_tree(*problem, depth=2, minimum_leaf=3)
    monkeypatch.setattr("fedopl.client.local.local_tree.os.cpu_count", lambda: 2)
    assert best_observed_tree(*problem, depth=2, minimum_leaf=3) == alone


@needs_numba
@pytest.mark.parametrize("wrong", [{"depth": 3}, {"depth": -1}, {"depth": 1, "split_cost": -0.1}])
def test_what_cannot_be_searched_is_refused(wrong):
    with pytest.raises(ValueError, match=r"expected 0"):
        best_observed_tree(np.eye(2), (False, False), np.eye(2), **wrong)


def test_without_numba_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(OptionError, match=r"need numba; pip install 'fedopl\[observed\]'"):
        best_observed_tree(np.eye(2), (False, False), np.eye(2), depth=2)
