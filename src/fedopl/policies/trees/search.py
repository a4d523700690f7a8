"""Exact search for the best tree of depth 0, 1 or 2, from sums of scores in a grid's cells.

Columns are cut into bins. For every two columns and every two bins, there is the sum of each
action's scores over the rows of that cell. The leaves of a tree with one split are sums over one
column's bins. A tree of depth two splits on one column, then on another in each half, so its leaves
are sums over rectangles of two columns' cells. These sums are enough to find the best of all such
trees, in O(p²·B²·d), and no row is needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.policies.trees.grid import Grid, Rules
from fedopl.policies.trees.nodes import Branch, Leaf, Node, branches_of

# The sums in each cell, (n_cells, 2 + n_actions): rows, their weight, and scores by action. If
# scores are missing, n_actions more follow: the weight of the rows that have one. With caution,
# n_actions more come last: squares of what is subtracted from each action's sum.
ROWS, WEIGHT, FIRST_ACTION = 0, 1, 2
YES_NO = (0, 1)  # the sides of a split
# Values this close, as a share of all scores, are ties: another order of summation may cause them.
ROUNDING = 1e-11
# Roots of differences of sums have larger rounding errors.
ROUNDING_OF_ROOTS = 1e-8
# A split has to add this many times as much, so that the smaller of two equal trees is taken.
WORTH_A_SPLIT = 4


@dataclass(frozen=True)
class Found:
    """A tree, and the sum of its leaves' scores minus the cost of its splits."""

    node: Node
    value: float


def best_tree(cells: FloatArray, grid: Grid, depth: int, rules: Rules) -> Found:
    """The best tree of depth 0, 1 or 2; ties go to fewer splits, then to the first found."""
    tables = _Tables(cells, grid, rules)
    rounding = ROUNDING_OF_ROOTS if rules.is_doubted else ROUNDING
    found = _Search(tables, rules, tie=rounding * tables.size).best(depth)
    return Found(found.node, found.value + tables.baseline)


def leaf_values(
    leaves: FloatArray, allowed: BoolArray | None, rules: Rules
) -> FloatArray:  # (n_actions, …)
    """The value of a leaf by action; −∞ if the action is not allowed or the leaf has too few rows.

    Rows that lack an action's score count like the average of the others in the leaf. With caution,
    a standard error of the sum is subtracted from it.
    """
    last = 1 + rules.n_actions
    values = leaves[1:last]
    if rules.is_doubted:
        leaves, doubts = np.split(leaves, [len(leaves) - rules.n_actions])
        values = values - np.sqrt(np.maximum(doubts, 0.0))
    if len(leaves) > last:
        weight, known = leaves[last], leaves[last + 1 :]
        share = np.divide(weight, known, where=known > 0, out=np.zeros(values.shape))
        values = np.where(known > 0, values * share, -np.inf)
    if allowed is not None:
        values = np.where(allowed, values, -np.inf)
    few = leaves[0] < rules.minimum_leaf
    return np.where(few, -np.inf, values) if np.any(few) else values


def _largest(values: FloatArray) -> FloatArray:  # (…)
    """The maximum over the first axis; the axis is short, so a loop is fastest."""
    largest = np.array(values[0])
    for other in values[1:]:
        np.maximum(largest, other, out=largest)
    return largest


# --- what the search reads ---------------------------------------------------------------------


class _Tables:
    """Sums as planes: rows, each action's scores, weights and the weights behind scores, doubts.

    Scores are measured from the mean of all actions. Only differences between actions decide, and
    what they have in common adds up to the same for every tree. If scores are missing, the mean of
    all cells is subtracted instead of each cell's own. Tables are read one by one, which avoids a
    copy of all the cells.
    """

    def __init__(self, numbers: FloatArray, grid: Grid, rules: Rules) -> None:
        self.numbers, self.grid = numbers, grid
        self.scores = slice(FIRST_ACTION, FIRST_ACTION + rules.n_actions)
        first_doubt = numbers.shape[1] - rules.n_actions * rules.is_doubted
        self.known, self.doubts = slice(self.scores.stop, first_doubt), slice(first_doubt, None)
        self.is_complete = first_doubt == self.scores.stop
        self.level = 0.0 if self.is_complete else self._level()

    @property
    def size(self) -> float:
        """The sum of the absolute values of all scores, as a mean over tables."""
        sizes = [np.abs(self.numbers[t, self.scores]).sum() for t in self.grid.tables.values()]
        return float(sum(sizes)) / len(sizes)

    @property
    def baseline(self) -> float:
        """What was subtracted from the value of every tree."""
        line = self.grid.line(self.numbers, 0)
        if self.is_complete:
            return float(line[:, self.scores].mean(axis=1).sum())
        return self.level * float(line[:, WEIGHT].sum())

    def line(self, column: int) -> FloatArray:  # (n_planes, n_bins)
        """The sums of one column's bins."""
        return self._planes(self.grid.line(self.numbers, column))

    def table(self, column: int, other: int) -> FloatArray:  # (n_planes, n_bins, n_bins of other)
        """Sums of two columns' cells, the lower column first; a column twice gives a diagonal."""
        table = self.grid.table(self.numbers, column, other)
        planes = self._planes(table.reshape(-1, table.shape[-1]))
        return planes.reshape(-1, *table.shape[:2])

    def _planes(self, numbers: FloatArray) -> FloatArray:  # (n_planes, n_cells)
        rows, scores, doubts = (numbers[:, own].T for own in ([ROWS], self.scores, self.doubts))
        if self.is_complete:
            return np.concatenate([rows, scores - scores.mean(axis=0), doubts])
        known = numbers[:, self.known].T
        centred = scores - self.level * known
        return np.concatenate([rows, centred, numbers[:, [WEIGHT]].T, known, doubts])

    def _level(self) -> float:
        line = self.grid.line(self.numbers, 0)
        total = float(line[:, self.known].sum())
        return float(line[:, self.scores].sum()) / total if total > 0 else 0.0


# --- the search --------------------------------------------------------------------------------


@dataclass(eq=False)
class _Half:
    """For every split of one column, the best subtree for the rows on one side of it."""

    values: FloatArray  # (n_splits,)
    columns: IntArray  # (n_splits,)  that is split on, −1 where nothing is
    places: IntArray  # (n_splits,)  of the cut

    def consider(
        self, column: int, values: FloatArray, tie: float, answered: BoolArray | None
    ) -> None:
        """Take another column's splits where they are better; values are (n_splits, n_splits)."""
        if not values.size:
            return
        if answered is not None:
            values[:, answered] = -np.inf
        places = _first_best(values, tie)
        offered = values[np.arange(len(places)), places]
        better = offered > self.values + tie
        self.values[better] = offered[better]
        self.columns[better], self.places[better] = column, places[better]


def _first_best(values: FloatArray, tie: float) -> IntArray:  # (n_lines,)
    """In every line, the first position whose value nothing exceeds."""
    return np.asarray((values >= values.max(axis=1, keepdims=True) - tie).argmax(axis=1))


class _Search:
    """The search over all trees on one grid's cells."""

    def __init__(self, tables: _Tables, rules: Rules, tie: float) -> None:
        self.tables, self.grid, self.rules = tables, tables.grid, rules
        self.tie, self.cost = tie, rules.split_cost + WORTH_A_SPLIT * tie

    def best(self, depth: int) -> Found:
        """The best of all trees of at most this depth."""
        everybody = self.tables.line(0).sum(axis=1)
        best = Found(self._leaf(everybody, ()), float(self.worth(everybody, self._allowed())))
        for column, (yes, no) in enumerate(self._halves(depth) if depth else ()):
            values = yes.values + no.values - self.cost
            if column in self.rules.answered:
                values[self.rules.answered[column]] = -np.inf
            place = int(_first_best(values[None], self.tie)[0]) if len(values) else 0
            if len(values) and values[place] > best.value + self.tie:
                best = Found(self._node(column, place, yes, no), float(values[place]))
        n_splits = len(branches_of(best.node))
        return Found(best.node, best.value + n_splits * (self.cost - self.rules.split_cost))

    def worth(self, leaves: FloatArray, allowed: BoolArray | None) -> FloatArray:
        """The value of leaves with their best actions."""
        return _largest(leaf_values(leaves, allowed, self.rules))

    def _halves(self, depth: int) -> list[list[_Half]]:
        """For each column, both sides of every split, the yes side first.

        The four corners of two columns' splits serve for both orders of the two questions.
        """
        halves = [self._unsplit(column) for column in range(self.grid.n_columns)]
        for first, second in self.grid.tables if depth > 1 else ():
            corners = self._corners(first, second)
            worth = {
                (a, b): self.worth(corners[a][b], self._allowed((first, a), (second, b)))
                for a in YES_NO
                for b in YES_NO
            }
            answered = self.rules.answered
            for a in YES_NO:
                both = worth[a, 0] + worth[a, 1] - self.cost
                halves[first][a].consider(second, both, self.tie, answered.get(second))
            for b in YES_NO if first != second else ():
                both = (worth[0, b] + worth[1, b] - self.cost).T
                halves[second][b].consider(first, both, self.tie, answered.get(first))
        return halves

    def _unsplit(self, column: int) -> list[_Half]:
        halves = []
        for side, leaves in enumerate(self._sides(column)):
            values = self.worth(leaves, self._allowed((column, side)))
            nothing = np.full(len(values), -1)
            halves.append(_Half(values, nothing, nothing.copy()))
        return halves

    def _sides(self, column: int) -> list[FloatArray]:  # each (n_planes, n_splits)
        """For every split of the column, the sums over rows with answer yes, and with answer no."""
        line = self.tables.line(column)
        yes = self._said_yes(line, column, axis=1)
        return [yes, line.sum(axis=1, keepdims=True) - yes]

    def _corners(self, first: int, second: int) -> list[list[FloatArray]]:
        """For every split of both columns, the sums over rows by their two answers.

        By the first column's answer, then by the second's; each (n_planes, n_splits, n_splits).
        """
        table = self.tables.table(first, second)
        yes_all = self._said_yes(table.sum(axis=2, keepdims=True), first, axis=1)
        no_all = table.sum(axis=(1, 2), keepdims=True) - yes_all
        all_yes = self._said_yes(table.sum(axis=1, keepdims=True), second, axis=2)
        yes_yes = self._said_yes(self._said_yes(table, first, axis=1), second, axis=2)
        # Three corners are differences of sums: only one of them takes sums along both axes.
        no_yes = all_yes - yes_yes
        return [[yes_yes, yes_all - yes_yes], [no_yes, no_all - no_yes]]

    def _said_yes(self, sums: FloatArray, column: int, axis: int) -> FloatArray:
        """Sums along an axis, by split: up to each threshold, or at each level."""
        if self.grid.is_level[column]:
            return sums
        places = [slice(None)] * sums.ndim
        places[axis] = slice(len(self.grid.cuts[column]))
        return np.asarray(np.cumsum(sums, axis=axis)[tuple(places)])

    def _allowed(self, *answers: tuple[int, int]) -> BoolArray | None:  # (n_actions, …)
        """Which actions a leaf after these answers may take, for every position of their cuts."""
        if not self.rules.groups:
            return None
        shape = [len(self.grid.cuts[column]) for column, _ in answers]
        forbidden = np.zeros((self.rules.n_actions, *shape), bool)
        for group in self.rules.groups:
            present = np.ones(shape, bool)
            for axis, (column, side) in enumerate(answers):
                if column == group.column:
                    along = [1] * len(shape)
                    along[axis] = -1
                    present = present & group.possible[:, side].reshape(along)
            forbidden[group.forbidden] |= present
        return ~forbidden

    # --- what was found ------------------------------------------------------------------------

    def _node(self, column: int, place: int, yes: _Half, no: _Half) -> Branch:
        below: list[Node] = []
        for side, half in enumerate((yes, no)):
            other, second = int(half.columns[place]), int(half.places[place])
            if other < 0:
                numbers = self._sides(column)[side][:, place]
                below.append(self._leaf(numbers, ((column, side, place),)))
            else:
                below.append(self._stump((column, side, place), other, second))
        return Branch(column, self.grid.cuts[column][place], *below)

    def _stump(self, above: tuple[int, int, int], other: int, place: int) -> Branch:
        """The split of another column below an answer (column, side, place)."""
        column, side, first = above
        corners = self._corners(min(column, other), max(column, other))
        leaves = []
        for below in YES_NO:
            if column <= other:
                numbers = corners[side][below][:, first, place]
            else:
                numbers = corners[below][side][:, place, first]
            leaves.append(self._leaf(numbers, (above, (other, below, place))))
        return Branch(other, self.grid.cuts[other][place], *leaves)

    def _leaf(self, numbers: FloatArray, path: Sequence[tuple[int, int, int]]) -> Leaf:
        """The leaf after these answers (column, side, place), with the best action."""
        allowed = self._allowed(*((column, side) for column, side, _ in path))
        if allowed is not None:
            for _, _, place in reversed(path):
                allowed = allowed[..., place]
        whatever_size = replace(self.rules, minimum_leaf=-np.inf)
        return Leaf(int(leaf_values(numbers, allowed, whatever_size).argmax()))
