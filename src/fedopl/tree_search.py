"""The best small tree from sums of scores in the cells of a grid: exact, and without a row.

Columns are cut into bins. For every two columns and every two bins there is the sum of each
action's scores over the rows of that cell; cells of a column with itself lie on a diagonal. A
stump's leaves are sums over one column's bins; a tree of depth two splits on one column, then on
another in each half, so its leaves are sums over rectangles of two columns' cells. Hence all of
them can be told from these sums, in O(p²·B²·d) once they are there.
"""

from dataclasses import dataclass

import numpy as np

from fedopl.arrays import BoolArray, FloatArray
from fedopl.policies.tree import Leaf, Node, Split


@dataclass(frozen=True, eq=False, kw_only=True)
class Grid:
    """Where columns are cut; a column of labels has a bin for each level."""

    cuts: tuple[tuple[float, ...], ...]  # of each column: thresholds, or positions of levels
    is_level: tuple[bool, ...]

    @property
    def n_columns(self) -> int:
        """How many columns a tree may split on."""
        return len(self.cuts)

    def n_bins(self, column: int) -> int:
        """How many bins a column has."""
        return len(self.cuts[column]) + (not self.is_level[column])

    def n_splits(self, column: int) -> int:
        """How many ways there are to split on it."""
        return len(self.cuts[column])


@dataclass(frozen=True, eq=False, kw_only=True)
class Cells:
    """Sums over the rows of every cell of every two columns."""

    sums: FloatArray  # (n_columns, n_columns, n_bins, n_bins, n_actions)
    counts: FloatArray  # (n_columns, n_columns, n_bins, n_bins)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What a tree has to keep to."""

    minimum_leaf: float = 1.0
    split_cost: float = 0.0  # in the unit of the sums: a split has to add more than this
    actions: BoolArray | None = None  # (n_actions,) which may be chosen


@dataclass(frozen=True)
class Found:
    """A tree, and the sum of its leaves' scores less what its splits cost."""

    node: Node
    value: float


def best_tree(cells: Cells, grid: Grid, depth: int, rules: Rules) -> Found:
    """The best tree of depth 0, 1 or 2; a tie goes to fewer splits, then to what comes first."""
    everything, count = cells.sums[0, 0].sum(axis=(0, 1)), cells.counts[0, 0].sum()
    leaf, action = _leaf(everything, count, rules)
    best = Found(Leaf(int(action)), float(leaf))
    if depth == 0:
        return best
    for column in range(grid.n_columns):
        halves = _halves(cells, grid, column, depth, rules)
        values = halves[0].values + halves[1].values - rules.split_cost
        place = int(np.argmax(values)) if len(values) else 0
        if len(values) and values[place] > best.value:
            yes, no = (half.node(place, grid) for half in halves)
            best = Found(Split(column, grid.cuts[column][place], yes, no), float(values[place]))
    return best


@dataclass(eq=False)
class _Half:
    """For every split of one column, the best that can be made of the rows on one side of it."""

    values: FloatArray  # (n_splits,)
    actions: FloatArray  # (n_splits,)  of the leaf, where nothing is split
    columns: FloatArray  # (n_splits,)  that is split on, −1 where nothing is
    splits: FloatArray  # (n_splits,)
    below: FloatArray  # (n_splits, 2)  the actions of the two leaves

    def consider(self, column: int, values: FloatArray, leaves: FloatArray) -> None:
        """Take what another column offers where it is better; values are (n_splits, n_splits)."""
        if not values.shape[1]:
            return
        places = values.argmax(axis=1)
        rows = np.arange(len(places))
        offered = values[rows, places]
        better = offered > self.values
        self.values[better] = offered[better]
        self.columns[better] = column
        self.splits[better] = places[better]
        self.below[better] = leaves[rows, places][better]

    def node(self, place: int, grid: Grid) -> Node:
        """The leaf or the split that is best at this split of the column above."""
        column = int(self.columns[place])
        if column < 0:
            return Leaf(int(self.actions[place]))
        yes, no = (Leaf(int(action)) for action in self.below[place])
        return Split(column, grid.cuts[column][int(self.splits[place])], yes, no)


def _halves(cells: Cells, grid: Grid, column: int, depth: int, rules: Rules) -> list[_Half]:
    """Both sides of every split of this column, the side that says yes first."""
    halves = [_unsplit(sums, rules) for sums in _sides(cells, grid, column)]
    for other in range(grid.n_columns) if depth > 1 else ():
        quarters = _quarters(cells, grid, column, other)
        for half, (yes, no) in zip(halves, quarters, strict=True):
            (yes_value, yes_action), (no_value, no_action) = _leaf(*yes, rules), _leaf(*no, rules)
            leaves = np.stack([yes_action, no_action], axis=-1)
            half.consider(other, yes_value + no_value - rules.split_cost, leaves)
    return halves


Sums = tuple[FloatArray, FloatArray]  # (…, n_actions) and counts (…)


def _sides(cells: Cells, grid: Grid, column: int) -> list[Sums]:
    """For every split of the column, the sums of those who say yes, and of those who say no."""
    both = _table(cells, grid, column, column).sum(axis=1)
    yes = _said_yes(both, grid, column)
    no = both.sum(axis=0) - yes
    return [(part[..., :-1], part[..., -1]) for part in (yes, no)]


def _table(cells: Cells, grid: Grid, column: int, other: int) -> FloatArray:
    """The sums of two columns' cells, and their counts as one more action."""
    bins = np.s_[: grid.n_bins(column), : grid.n_bins(other)]
    sums, counts = cells.sums[column, other][bins], cells.counts[column, other][bins]
    return np.concatenate([sums, counts[..., None]], axis=-1)


def _quarters(cells: Cells, grid: Grid, column: int, other: int) -> list[list[Sums]]:
    """For every split of both columns, the sums of the four corners: by column, then by other."""
    both = _table(cells, grid, column, other)
    yes_all = _said_yes(both.sum(axis=1), grid, column)  # (n_splits, n_actions + 1)
    all_yes = _said_yes(both.sum(axis=0), grid, other)
    yes_yes = _said_yes(np.swapaxes(_said_yes(both, grid, column), 0, 1), grid, other)
    yes_yes = np.swapaxes(yes_yes, 0, 1)  # (n_splits, n_splits of other, n_actions + 1)
    yes_no = yes_all[:, None] - yes_yes
    no_yes = all_yes[None] - yes_yes
    no_no = both.sum(axis=(0, 1)) - yes_all[:, None] - no_yes
    return [
        [(part[..., :-1], part[..., -1]) for part in half]
        for half in ((yes_yes, yes_no), (no_yes, no_no))
    ]


def _said_yes(sums: FloatArray, grid: Grid, column: int) -> FloatArray:
    """Sums over the first axis, by split: up to each threshold, or at each level."""
    if grid.is_level[column]:
        return sums
    up_to: FloatArray = np.cumsum(sums, axis=0)[: grid.n_splits(column)]
    return up_to


def _unsplit(sums: Sums, rules: Rules) -> _Half:
    values, actions = _leaf(*sums, rules)
    none = np.full(len(values), -1.0)
    return _Half(values, actions, none, none.copy(), np.zeros((len(values), 2)))


def _leaf(sums: FloatArray, counts: FloatArray, rules: Rules) -> Sums:
    """What a leaf is worth and its action; nothing at all where it has too few rows."""
    allowed = sums if rules.actions is None else np.where(rules.actions, sums, -np.inf)
    values = np.where(counts >= rules.minimum_leaf, allowed.max(axis=-1), -np.inf)
    return values, allowed.argmax(axis=-1).astype(np.float64)
