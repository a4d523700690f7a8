"""The public grid of thresholds for the search of trees, its cells, and the rules of trees."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Self

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.policies.tree_columns import Column, LevelColumn
from fedopl.policies.trees.nodes import Leaf, Node, branches_of
from fedopl.policies.trees.tree_plan import Restriction, TreePlan


@dataclass(frozen=True, eq=False)
class Grid:
    """The thresholds of columns; a column of labels has a bin for each level.

    There is a table of cells for every two columns, and a line of bins for every column. All of
    them are laid out one after the other on one axis, so columns with few bins take little room.
    Columns without any cut have no cells, since no question can be about them.
    """

    cuts: tuple[tuple[float, ...], ...]  # of each column: thresholds, or positions of levels
    is_level: tuple[bool, ...]

    @property
    def n_columns(self) -> int:
        """The number of columns that a tree may split on."""
        return len(self.cuts)

    @cached_property
    def n_bins(self) -> tuple[int, ...]:
        """The number of bins of each column."""
        cut = zip(self.cuts, self.is_level, strict=True)
        return tuple(len(cuts) + (not level) for cuts, level in cut)

    @cached_property
    def asked(self) -> tuple[int, ...]:
        """The columns that have cells: those with cuts, or the first if none has."""
        return tuple(column for column, cuts in enumerate(self.cuts) if cuts) or (0,)

    @cached_property
    def tables(self) -> dict[tuple[int, int], slice]:
        """The positions of the cells of two columns, the lower first; one column has a line."""
        found, start = {}, 0
        for first, second in combinations_with_replacement(self.asked, 2):
            size = self.n_bins[first] * (1 if first == second else self.n_bins[second])
            found[first, second] = slice(start, start + size)
            start += size
        return found

    @property
    def n_cells(self) -> int:
        """The number of cells in all tables and lines."""
        return sum(table.stop - table.start for table in self.tables.values())

    @property
    def whole(self) -> slice:
        """The positions of one column's bins, in which every row is once."""
        return self.tables[self.asked[0], self.asked[0]]

    def line(self, cells: FloatArray, column: int) -> FloatArray:  # (n_bins, …)
        """The part of `cells` for one column's bins; a column without cuts has all in one."""
        own = self.tables.get((column, column))
        return cells[self.whole].sum(axis=0, keepdims=True) if own is None else cells[own]

    def table(self, cells: FloatArray, column: int, other: int) -> FloatArray:  # (n, m, …)
        """The part of `cells` for two columns' bins; the same column twice gives a diagonal."""
        if column == other:
            square = np.zeros((self.n_bins[column], self.n_bins[column], *cells.shape[1:]))
            square[np.diag_indices(self.n_bins[column])] = self.line(cells, column)
            return square
        first, second = sorted((column, other))
        table = cells[self.tables[first, second]]
        table = table.reshape(self.n_bins[first], self.n_bins[second], *cells.shape[1:])
        return table if column < other else np.swapaxes(table, 0, 1)


def cell_names(grid: Grid, columns: Sequence[Column]) -> Iterator[str]:
    """A description of each cell, in the order of cells."""
    bins = [
        [_bin_name(grid, columns, column, place) for place in range(n_bins)]
        for column, n_bins in enumerate(grid.n_bins)
    ]
    for first, second in grid.tables:
        if first == second:
            yield from bins[first]
        else:
            yield from (f"{one}, {other}" for one in bins[first] for other in bins[second])


def _bin_name(grid: Grid, columns: Sequence[Column], column: int, place: int) -> str:
    asked, cuts = columns[column], grid.cuts[column]
    if isinstance(asked, LevelColumn) and cuts:
        return f"{asked.name} is {asked.levels[place] or 'missing'}"
    if not cuts:
        return "all"
    return f"{asked.name} ≤ {cuts[place]:.6g}" if place < len(cuts) else f"{asked.name} above"


def grid_of(
    columns: Sequence[Column], cuts: Sequence[Sequence[float]], asked: Collection[str] = ()
) -> Grid:
    """The grid with these thresholds, and labels cut at every level.

    If `asked` names columns, the other columns are not cut at all.
    """
    found, is_level = [], []
    for column, own in zip(columns, cuts, strict=True):
        may_be_asked = not asked or column.name in asked
        places = range(len(column.levels)) if isinstance(column, LevelColumn) else own
        found.append(tuple(map(float, places)) if may_be_asked else ())
        is_level.append(isinstance(column, LevelColumn) and may_be_asked)
    return Grid(tuple(found), tuple(is_level))


@dataclass(frozen=True, eq=False)
class Group:
    """People who may not get every action; a leaf that may hold any of them must obey."""

    column: int  # that says who belongs to the group
    possible: BoolArray  # (n_splits, 2) whether they may be among those who say yes, and no
    forbidden: BoolArray  # (n_actions,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Rules:
    """The rules that a tree must keep."""

    n_actions: int
    minimum_leaf: float = 1.0
    split_cost: float = 0.0  # in the unit of the sums: a split has to add more than this
    groups: tuple[Group, ...] = ()
    is_doubted: bool = False  # whether cells end with each action's squared doubts
    # By column, (n_splits,): questions with the same answer for all rows here.
    answered: Mapping[int, BoolArray] = field(default_factory=dict)

    def within(self, grid: Grid, column: int, place: int, *, yes: bool) -> Self:
        """The rules for the rows with this answer to a question.

        Some groups no longer occur among these rows, and some questions have the same answer for
        all.
        """
        remaining = [
            group
            for group in self.groups
            if group.column != column or group.possible[place, 0 if yes else 1]
        ]
        places = np.arange(len(grid.cuts[column]))
        known = places == place
        if grid.is_level[column] and yes:
            known = np.ones(len(places), bool)
        elif not grid.is_level[column]:
            known = places >= place if yes else places <= place
        known = known | self.answered.get(column, False)
        answered = {**self.answered, column: known}
        return replace(self, groups=tuple(remaining), answered=answered)


def agreed_grid(
    plan: TreePlan, columns: Sequence[Column], proposed: Mapping[str, Sequence[float]]
) -> Grid:
    """The plan's own thresholds, those proposed for other numbers, and the bounds of its groups."""
    cuts = []
    for column in columns:
        own = set(plan.cuts.get(column.name, proposed.get(column.name, ())))
        for group in plan.allowed:
            threshold = group.above if group.at_most is None else group.at_most
            if group.column == column.name and threshold is not None:
                own.add(threshold)
        cuts.append(sorted(own))
    return grid_of(columns, cuts, plan.columns)


def thresholds_of(grid: Grid) -> tuple[FloatArray, FloatArray]:
    """The number of thresholds of each column, and all thresholds in one array."""
    own = [() if level else cuts for cuts, level in zip(grid.cuts, grid.is_level, strict=True)]
    counts = np.array([len(cuts) for cuts in own], np.float64)
    return counts, np.array([cut for cuts in own for cut in cuts], np.float64)


def grid_from(
    plan: TreePlan, columns: Sequence[Column], n_cuts: FloatArray, cuts: FloatArray
) -> Grid:
    """The grid of these thresholds; a ValueError unless the study allows it."""
    if (n_cuts < 0).any() or (n_cuts % 1).any() or n_cuts.sum() != len(cuts):
        raise ValueError("the thresholds are not shared out among the columns")
    apart = np.split(cuts, np.cumsum(n_cuts.astype(np.int64))[:-1])
    if any((np.diff(own) <= 0).any() for own in apart):
        raise ValueError("thresholds do not rise")
    proposed = {column.name: own.tolist() for column, own in zip(columns, apart, strict=True)}
    grid = agreed_grid(plan, columns, proposed)
    if not all(map(np.array_equal, thresholds_of(grid), (n_cuts, cuts))):
        # Only the agreed grid may be asked about, never one made to single out rows.
        raise ValueError("there are other thresholds than were agreed")
    return grid


def rules_of(
    plan: TreePlan, columns: Sequence[Column], grid: Grid, actions: tuple[str, ...]
) -> Rules:
    """The rules for the whole tree."""
    return Rules(
        n_actions=len(actions),
        minimum_leaf=plan.minimum_leaf,
        split_cost=plan.split_cost,
        groups=tuple(_group(one, columns, grid, actions) for one in plan.allowed),
    )


def forbidden_in_leaves(
    root: Node, plan: TreePlan, columns: Sequence[Column], actions: tuple[str, ...]
) -> BoolArray:  # (n_leaves, n_actions)
    """Which actions each leaf of this tree may not use, since some of its rows may not get them."""
    own: dict[str, list[float]] = {}
    for branch in branches_of(root):
        own.setdefault(columns[branch.column].name, []).append(branch.cut)
    grid = agreed_grid(plan, columns, own)
    found: list[BoolArray] = []

    def walk(node: Node, rules: Rules) -> None:
        if isinstance(node, Leaf):
            barred = [group.forbidden for group in rules.groups]
            found.append(np.any([np.zeros(len(actions), bool), *barred], axis=0))
            return
        place = grid.cuts[node.column].index(node.cut)
        walk(node.yes, rules.within(grid, node.column, place, yes=True))
        walk(node.no, rules.within(grid, node.column, place, yes=False))

    walk(root, rules_of(plan, columns, grid, actions))
    return np.array(found)


def _group(
    restriction: Restriction, columns: Sequence[Column], grid: Grid, actions: tuple[str, ...]
) -> Group:
    place = [column.name for column in columns].index(restriction.column)
    column, cuts = columns[place], np.array(grid.cuts[place])
    if isinstance(column, LevelColumn):
        is_theirs = cuts == column.levels.index(restriction.level)
        possible = np.column_stack([is_theirs, ~is_theirs])
    elif restriction.at_most is not None:  # some say yes; who says no is above the cut
        possible = np.column_stack([np.ones(len(cuts), bool), cuts < restriction.at_most])
    else:
        possible = np.column_stack([cuts > restriction.above, np.ones(len(cuts), bool)])
    forbidden = np.array([action not in restriction.actions for action in actions])
    return Group(place, possible, forbidden)
