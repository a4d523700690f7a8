"""The best small tree from sums of scores in the cells of a grid: exact, and without a row.

Columns are cut into bins. For every two columns and every two bins there is the sum of each
action's scores over the rows of that cell. A stump's leaves are sums over one column's bins; a tree
of depth two splits on one column, then on another in each half, so its leaves are sums over
rectangles of two columns' cells. Hence the best of all of them can be told from these sums, in
O(p²·B²·d) once they are there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fedopl.arrays import BoolArray, FloatArray, IntArray
from fedopl.policies.tree import Leaf, Node, Split, nodes_of
from fedopl.trees.grid import Grid

# What a leaf holds: the rows, their weight, and for each action the sum of scores and the weight
# of the rows that have one.
ROWS, WEIGHT, FIRST_ACTION = 0, 1, 2
# Values this close, as a share of all scores, are ties: sums in another order may differ as much.
ROUNDING = 1e-11
# A split has to add this many times as much, so that of equal trees the smaller one is taken.
WORTH_A_SPLIT = 4


@dataclass(frozen=True, eq=False)
class Cells:
    """Sums over the rows of every cell: how many, their weight, then by action."""

    numbers: FloatArray  # (n_cells, 2 + n_actions), and n_actions more where scores are missing

    @classmethod
    def of(
        cls, rows: FloatArray, weight: FloatArray, scores: FloatArray, known: FloatArray | None
    ) -> Self:
        """Put together; `known` is the weight of the rows that have a score, where not all do."""
        parts = [rows[:, None], weight[:, None], scores]
        return cls(np.concatenate(parts if known is None else [*parts, known], axis=1))


@dataclass(frozen=True, eq=False)
class Group:
    """People who may not get every action, told by one column; a leaf that may hold any of them."""

    column: int
    possible: BoolArray  # (n_splits, 2) whether they may be among those who say yes, and no
    forbidden: BoolArray  # (n_actions,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Rules:
    """What a tree has to keep to."""

    n_actions: int
    minimum_leaf: float = 1.0
    split_cost: float = 0.0  # in the unit of the sums: a split has to add more than this
    groups: tuple[Group, ...] = ()

    def within(self, column: int, place: int, *, yes: bool) -> Self:
        """The rules for those who answered a question: some groups are no longer among them."""
        remaining = [
            group
            for group in self.groups
            if group.column != column or group.possible[place, 0 if yes else 1]
        ]
        return replace(self, groups=tuple(remaining))


@dataclass(frozen=True)
class Found:
    """A tree, and the sum of its leaves' scores less what its splits cost."""

    node: Node
    value: float


Worth = Callable[[FloatArray, BoolArray | None], FloatArray]


def best_tree(cells: Cells, grid: Grid, depth: int, rules: Rules) -> Found:
    """The best tree of depth 0, 1 or 2; a tie goes to fewer splits, then to what comes first."""

    def worth(leaves: FloatArray, allowed: BoolArray | None) -> FloatArray:
        values: FloatArray = leaf_values(leaves, allowed, rules).max(axis=-1)
        return values

    scores, _ = _by_action(cells.numbers, rules.n_actions)
    tie = ROUNDING * float(np.abs(scores).sum()) / len(grid.tables)
    centred_cells = centred(cells.numbers, rules.n_actions)
    found = _Search(centred_cells, grid, rules, worth, tie).best(depth)
    return Found(found.node, found.value + _baseline(cells.numbers, grid, rules.n_actions))


def centred(numbers: FloatArray, n_actions: int) -> FloatArray:  # shaped as numbers
    """The sums with each action's scores held against the mean of all.

    Only differences between actions decide. What they have in common adds up to the same for every
    tree; but where cells were hidden it would not quite, and the larger it is the more it would
    weigh. Where scores are missing, the mean of all cells is taken instead of each one's.
    """
    scores, known = _by_action(numbers, n_actions)
    moved = numbers.copy()
    moved[:, FIRST_ACTION : FIRST_ACTION + n_actions] = scores - (
        scores.mean(axis=1, keepdims=True) if known is None else _level(scores, known) * known
    )
    return moved


def _baseline(numbers: FloatArray, grid: Grid, n_actions: int) -> float:
    """What centring took from the value of every tree."""
    line = grid.line(numbers, 0)
    scores, known = _by_action(numbers, n_actions)
    if known is None:
        return float(line[:, FIRST_ACTION : FIRST_ACTION + n_actions].mean(axis=1).sum())
    return _level(scores, known) * float(line[:, WEIGHT].sum())


def _by_action(numbers: FloatArray, n_actions: int) -> tuple[FloatArray, FloatArray | None]:
    """Sums of scores, and the weight of the rows that have one where not all do."""
    last = FIRST_ACTION + n_actions
    known = numbers[:, last:] if numbers.shape[1] > last else None
    return numbers[:, FIRST_ACTION:last], known


def _level(scores: FloatArray, known: FloatArray) -> float:
    total = float(known.sum())
    return float(scores.sum()) / total if total > 0 else 0.0


def largest_error(errors: FloatArray, grid: Grid, depth: int, n_actions: int) -> float:
    """How far the value of any tree can move if the cells' centred scores move by `errors`."""

    def worth(leaves: FloatArray, _allowed: BoolArray | None) -> FloatArray:
        sizes: FloatArray = np.abs(leaves[..., FIRST_ACTION:]).max(axis=-1)
        return sizes

    padded = np.zeros((len(errors), FIRST_ACTION + n_actions))
    padded[:, FIRST_ACTION:] = errors
    return _Search(padded, grid, Rules(n_actions=n_actions), worth).best(min(depth, 2)).value


def leaf_values(
    leaves: FloatArray, allowed: BoolArray | None, rules: Rules
) -> FloatArray:  # (…, n_actions)
    """What a leaf is worth by action; −∞ where it may not be taken, or the leaf has too few rows.

    Where some rows lack an action's score, they count as the others in the leaf do on average.
    """
    last = FIRST_ACTION + rules.n_actions
    values = leaves[..., FIRST_ACTION:last]
    if leaves.shape[-1] > last:
        known, weight = leaves[..., last:], leaves[..., WEIGHT, None]
        share = np.divide(weight, known, where=known > 0, out=np.zeros(values.shape))
        values = np.where(known > 0, values * share, -np.inf)
    if allowed is not None:
        values = np.where(allowed, values, -np.inf)
    return np.where(leaves[..., ROWS, None] >= rules.minimum_leaf, values, -np.inf)


# --- the search --------------------------------------------------------------------------------


@dataclass(eq=False)
class _Half:
    """For every split of one column, the best that can be made of the rows on one side of it."""

    values: FloatArray  # (n_splits,)
    columns: FloatArray  # (n_splits,)  that is split on, −1 where nothing is
    places: FloatArray  # (n_splits,)  of the cut

    def consider(self, column: int, values: FloatArray, tie: float) -> None:
        """Take what another column offers where it is better; values are (n_splits, n_splits)."""
        if not values.shape[1]:
            return
        places = _first_best(values, tie)
        offered = values[np.arange(len(places)), places]
        better = offered > self.values + tie
        self.values[better] = offered[better]
        self.columns[better], self.places[better] = column, places[better]


def _first_best(values: FloatArray, tie: float) -> IntArray:  # (n_lines,)
    """In every line, the first place that nothing is better than."""
    places: IntArray = (values >= values.max(axis=1, keepdims=True) - tie).argmax(axis=1)
    return places


class _Search:
    """All trees on one grid's cells; `worth` says what a leaf is worth."""

    def __init__(
        self, numbers: FloatArray, grid: Grid, rules: Rules, worth: Worth, tie: float = 0.0
    ) -> None:
        self.numbers, self.grid, self.rules, self.worth = numbers, grid, rules, worth
        self.tie = tie
        self.cost = rules.split_cost + WORTH_A_SPLIT * self.tie

    def best(self, depth: int) -> Found:
        """The best of all trees of at most this depth."""
        everybody = self.grid.line(self.numbers, 0).sum(axis=0)
        best = Found(self._leaf(everybody, ()), float(self.worth(everybody, self._allowed())))
        for column in range(self.grid.n_columns) if depth else ():
            yes, no = self._halves(column, depth)
            values = yes.values + no.values - self.cost
            place = int(_first_best(values[None], self.tie)[0]) if len(values) else 0
            if len(values) and values[place] > best.value + self.tie:
                best = Found(self._node(column, place, yes, no), float(values[place]))
        n_splits = sum(isinstance(node, Split) for node in nodes_of(best.node))
        return Found(best.node, best.value + n_splits * (self.cost - self.rules.split_cost))

    def _halves(self, column: int, depth: int) -> list[_Half]:
        """Both sides of every split of this column, the side that says yes first."""
        halves = []
        for side, leaves in enumerate(self._sides(column)):
            values = self.worth(leaves, self._allowed((column, side)))
            none = np.full(len(values), -1.0)
            halves.append(_Half(values, none, none.copy()))
        for other in range(self.grid.n_columns) if depth > 1 else ():
            quarters = self._quarters(column, other)
            for side, half in enumerate(halves):
                yes, no = (
                    self.worth(leaves, self._allowed((column, side), (other, below)))
                    for below, leaves in enumerate(quarters[side])
                )
                half.consider(other, yes + no - self.cost, self.tie)
        return halves

    def _sides(self, column: int) -> list[FloatArray]:  # each (n_splits, n_numbers)
        """For every split of the column, the sums of those who say yes, and of those who say no."""
        line = self.grid.line(self.numbers, column)
        yes = self._said_yes(line, column)
        return [yes, line.sum(axis=0) - yes]

    def _quarters(self, column: int, other: int) -> list[list[FloatArray]]:
        """For every split of both columns, the sums of the four corners: by column, then other."""
        table = self.grid.table(self.numbers, column, other)
        yes_all = self._said_yes(table.sum(axis=1), column)  # (n_splits, n_numbers)
        all_yes = self._said_yes(table.sum(axis=0), other)
        yes_yes = self._said_yes(np.swapaxes(self._said_yes(table, column), 0, 1), other)
        yes_yes = np.swapaxes(yes_yes, 0, 1)  # (n_splits, n_splits of other, n_numbers)
        no_yes = all_yes[None] - yes_yes
        no_all = table.sum(axis=(0, 1)) - yes_all
        return [
            [yes_yes, yes_all[:, None] - yes_yes],
            [no_yes, no_all[:, None] - no_yes],
        ]

    def _said_yes(self, sums: FloatArray, column: int) -> FloatArray:
        """Sums over the first axis, by split: up to each threshold, or at each level."""
        if self.grid.is_level[column]:
            return sums
        up_to: FloatArray = np.cumsum(sums, axis=0)[: len(self.grid.cuts[column])]
        return up_to

    def _allowed(self, *answers: tuple[int, int]) -> BoolArray | None:
        """Which actions a leaf behind these answers may take, for every place of their cuts."""
        if not self.rules.groups:
            return None
        shape = [len(self.grid.cuts[column]) for column, _ in answers]
        forbidden = np.zeros((*shape, self.rules.n_actions), bool)
        for group in self.rules.groups:
            present = np.ones(shape, bool)
            for axis, (column, side) in enumerate(answers):
                if column == group.column:
                    along = [1] * len(shape)
                    along[axis] = -1
                    present = present & group.possible[:, side].reshape(along)
            forbidden |= present[..., None] & group.forbidden
        return ~forbidden

    # --- what was found ------------------------------------------------------------------------

    def _node(self, column: int, place: int, yes: _Half, no: _Half) -> Split:
        below: list[Node] = []
        for side, half in enumerate((yes, no)):
            other, second = int(half.columns[place]), int(half.places[place])
            if other < 0:
                leaves = self._sides(column)[side][place]
                below.append(self._leaf(leaves, ((column, side, place),)))
            else:
                below.append(self._stump((column, side, place), other, second))
        return Split(column, self.grid.cuts[column][place], *below)

    def _stump(self, above: tuple[int, int, int], other: int, place: int) -> Split:
        column, side, first = above
        quarters = self._quarters(column, other)[side]
        leaves = [
            self._leaf(quarters[below][first, place], (above, (other, below, place)))
            for below in (0, 1)
        ]
        return Split(other, self.grid.cuts[other][place], *leaves)

    def _leaf(self, numbers: FloatArray, path: Sequence[tuple[int, int, int]]) -> Leaf:
        """The leaf behind these answers (column, side, place), with the best action."""
        allowed = self._allowed(*((column, side) for column, side, _ in path))
        if allowed is not None:
            allowed = allowed[tuple(place for _, _, place in path)]
        whatever_size = replace(self.rules, minimum_leaf=-np.inf)
        return Leaf(int(leaf_values(numbers, allowed, whatever_size).argmax()))
