"""Trees of any depth: no worse than those of depth two, one question for each level."""

import numpy as np
import pytest
from test_search import Problem, brute_force, cells_of, says_yes

from fedopl.policies.trees.grid import Grid, Rules
from fedopl.policies.trees.growing import DONE, grow_tree, n_levels, simplified
from fedopl.policies.trees.nodes import Branch, Leaf, depth_of, nodes_of
from fedopl.policies.trees.search import best_tree

N_BINS, N_COLUMNS = 4, 3
GRID = Grid((tuple(float(cut) for cut in range(N_BINS - 1)),) * N_COLUMNS, (False,) * N_COLUMNS)


class Asked:
    """Cells by brute force, and what was asked for."""

    def __init__(self, seed, n_rows=200, n_actions=3, levels=99, grid=GRID):
        rng = np.random.default_rng(seed)
        self.bins = rng.integers(0, N_BINS, (n_rows, N_COLUMNS))
        self.scores = rng.integers(-9, 10, (n_rows, n_actions)).astype(float)
        self.partitions, self.levels, self.grid = [], levels, grid

    def __call__(self, partition):
        if len(self.partitions) == self.levels:
            return None
        self.partitions.append(partition)
        leaf = self.places(partition)
        n_open = 1 + max(n.action for n in nodes_of(partition) if isinstance(n, Leaf))
        return [
            cells_of(self.bins[leaf == part], self.scores[leaf == part], self.grid)
            for part in range(n_open)
        ]

    def places(self, node):
        if isinstance(node, Leaf):
            return np.full(len(self.bins), node.action)
        place = self.grid.cuts[node.column].index(node.cut)
        yes = says_yes(self.bins, self.grid, node.column, place)
        return np.where(yes, self.places(node.yes), self.places(node.no))

    def value(self, root):
        return self.scores[np.arange(len(self.scores)), self.places(root)].sum()


@pytest.mark.parametrize("seed", range(20))
def test_deeper_is_never_worse_and_up_to_two_it_is_exact(seed):
    rules = Rules(n_actions=3, minimum_leaf=5.0)
    values = []
    for depth in range(1, 6):
        asked = Asked(seed)
        root, value = grow_tree(GRID, depth, rules, asked)
        assert value == pytest.approx(asked.value(root))
        assert depth_of(root) <= depth
        assert len(asked.partitions) <= n_levels(depth)
        assert min(np.bincount(asked.places(_numbered(root)))) >= 5
        values.append(value)
    assert values == sorted(values)
    everything = cells_of(asked.bins, asked.scores, GRID)
    assert values[1] == pytest.approx(best_tree(everything, GRID, 2, rules).value)


def _numbered(root, start=0):
    """The tree with its leaves counted instead of their actions."""
    counter = iter(range(99))

    def number(node):
        if isinstance(node, Leaf):
            return Leaf(next(counter))
        return Branch(node.column, node.cut, number(node.yes), number(node.no))

    return number(root)


def test_a_partition_divides_all_rows_and_names_what_is_done():
    asked = Asked(3, n_rows=400)
    cost = Rules(n_actions=3, split_cost=40.0)
    grow_tree(GRID, 5, cost, asked)
    numbers = [
        {node.action for node in nodes_of(partition) if isinstance(node, Leaf)}
        for partition in asked.partitions
    ]
    assert numbers[0] == {0}
    assert all(found - {DONE} == set(range(max(found) + 1)) for found in numbers)
    assert len(asked.partitions) > 1


def test_the_search_two_levels_ahead_need_not_be_the_best_of_all():
    """What only three questions together can see is not seen by looking two ahead."""

    class Parity(Asked):
        def __init__(self):
            super().__init__(0)
            grid = np.array(np.meshgrid(*[[0, 3]] * 3)).reshape(3, -1).T
            self.bins = np.repeat(grid, 10, axis=0)
            odd = (self.bins == 3).sum(axis=1) % 2
            self.scores = np.column_stack([odd, 1 - odd]).astype(float)

    asked = Parity()
    root, value = grow_tree(GRID, 3, Rules(n_actions=2), asked)
    assert value == 40
    assert isinstance(root, Leaf)


def test_where_nobody_tells_more_the_tree_ends_with_what_was_seen_ahead():
    rules = Rules(n_actions=3)
    whole, cut_off = Asked(1), Asked(1, levels=1)
    exact, _ = grow_tree(GRID, 2, rules, whole)
    root, _ = grow_tree(GRID, 4, rules, cut_off)
    assert root == simplified(exact)


def test_a_part_of_which_nobody_tells_anything_ends_with_what_was_seen_ahead():
    class Silent(Asked):
        def __call__(self, partition):
            found = super().__call__(partition)
            return [np.zeros_like(found[0]), *found[1:]] if len(found) > 1 else found

    rules = Rules(n_actions=3)
    exact, _ = grow_tree(GRID, 2, rules, Asked(1))
    root, value = grow_tree(GRID, 3, rules, Silent(1))
    assert (root.column, root.cut, root.yes) == (exact.column, exact.cut, exact.yes)
    assert root.no != exact.no  # the other part was searched further
    assert np.isfinite(value)


def test_a_question_that_changes_nothing_is_left_out():
    same = Branch(0, 1.0, Leaf(1), Leaf(1))
    assert simplified(same) == Leaf(1)
    assert simplified(Branch(1, 0.0, same, Leaf(1))) == Leaf(1)
    assert simplified(Branch(1, 0.0, same, Leaf(2))) == Branch(1, 0.0, Leaf(1), Leaf(2))


def test_brute_force_agrees_on_depth_three_at_least_as_a_bound():
    asked = Asked(7, n_rows=12, n_actions=2)
    rules = Rules(n_actions=2)
    known = np.ones(asked.scores.shape, bool)
    best = brute_force(Problem(asked.bins, asked.scores, known, GRID, rules), 3)
    assert grow_tree(GRID, 3, rules, asked)[1] <= best


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_asked_that_was_answered_above_however_blurred_the_cells_are(seed):
    """Bins that were joined lie on both sides of a threshold, also of one that was asked about."""

    class Blurred(Asked):
        def __call__(self, partition):
            noise = np.random.default_rng(seed)
            return [one + 9 * noise.random(one.shape) for one in super().__call__(partition)]

    levels = Grid((GRID.cuts[0], GRID.cuts[1], (0.0, 1.0, 2.0, 3.0)), (False, False, True))
    root, _ = grow_tree(levels, 5, Rules(n_actions=3), Blurred(seed, grid=levels))

    def check(node, known):
        if isinstance(node, Leaf):
            return
        low, high, isnt = known[node.column]
        if levels.is_level[node.column]:
            assert node.cut not in isnt
            yes, no = (low, high, {0.0, 1.0, 2.0, 3.0}), (low, high, isnt | {node.cut})
        else:
            assert low < node.cut < high
            yes, no = (low, node.cut, isnt), (node.cut, high, isnt)
        check(node.yes, {**known, node.column: yes})
        check(node.no, {**known, node.column: no})

    check(root, dict.fromkeys(range(3), (-np.inf, np.inf, set())))
    assert depth_of(root) >= 3
