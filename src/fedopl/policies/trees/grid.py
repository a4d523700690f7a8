"""The public grid of thresholds for the search of trees, and the layout of its cells."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.policies.tree_columns import Column, LevelColumn


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
