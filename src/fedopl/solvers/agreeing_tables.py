"""Adjusts noisy tables of sums so that they agree where they add up the same rows.

Without noise every table of two columns has the same total, and each column's bins have the same
sums in all tables that contain the column. With noise they differ. The closest tables that do agree
contain less noise: with p columns, the effect of each column is a mean over p − 1 tables, and the
total is a mean over all tables.
"""

from collections.abc import Sequence

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.policies.trees.grid import Grid


def agreeing_cells(
    cells: FloatArray, grid: Grid, released: Sequence[tuple[int, int]]
) -> FloatArray:  # (n_cells, n_numbers), of the whole grid
    """The cells of a whole grid by least squares, from noisy cells (n_released, n_numbers).

    A table consists of its total, spread evenly, the effects of its two columns, and an interaction
    that no other table shares. For tables that were not released, the interaction is taken as zero.
    """
    sizes = [grid.tables[table].stop - grid.tables[table].start for table in released]
    apart = np.split(cells, np.cumsum(sizes)[:-1])
    tables = {
        (first, second): own.reshape(grid.n_bins[first], -1, cells.shape[1])
        for (first, second), own in zip(released, apart, strict=True)
    }
    fitted = _Effects(tables, grid)
    found = np.empty((grid.n_cells, cells.shape[1]))
    for columns, place in grid.tables.items():
        shaped = fitted.table(columns) + fitted.left(columns)
        found[place] = shaped.reshape(-1, cells.shape[1])
    return found


class _Effects:
    """What tables share: a total, and an effect of each column's bins."""

    def __init__(self, tables: dict[tuple[int, int], FloatArray], grid: Grid) -> None:
        self._tables, self._grid = tables, grid
        # A sum over more cells has more noise, so it counts for less.
        weights = [1 / (own.shape[0] * own.shape[1]) for own in tables.values()]
        totals = [own.sum(axis=(0, 1)) for own in tables.values()]
        self._total = np.average(totals, axis=0, weights=weights)  # (n_numbers,)
        self._effects = [self._effect(column) for column in range(grid.n_columns)]

    def _effect(self, column: int) -> FloatArray:  # (n_bins, n_numbers), zero in sum
        found, weights = [], []
        for columns, own in self._tables.items():
            if column in columns:
                other = 1 if column == columns[0] else 0
                sums = own.sum(axis=other)
                found.append(sums - sums.mean(axis=0))
                weights.append(1 / own.shape[other])
        if not found:
            return np.zeros((self._grid.n_bins[column], len(self._total)))
        return np.average(found, axis=0, weights=weights)

    def table(self, columns: tuple[int, int]) -> FloatArray:  # (n_bins, n_bins or 1, n_numbers)
        """The table that the total and the effects imply; a single line for one column."""
        first, second = columns
        n_first = self._grid.n_bins[first]
        if first == second:
            return (self._effects[first] + self._total / n_first)[:, None]
        n_second = self._grid.n_bins[second]
        beside = self._effects[second][None] / n_first
        found: FloatArray = self._effects[first][:, None] / n_second + beside
        return found + self._total / (n_first * n_second)

    def left(self, columns: tuple[int, int]) -> FloatArray | float:
        """The interaction of a released table: what its own total and effects do not explain."""
        own = self._tables.get(columns)
        if own is None:
            return 0.0
        across = own.mean(axis=1, keepdims=True)
        found: FloatArray = own - across - own.mean(axis=0) + own.mean(axis=(0, 1))
        return found
