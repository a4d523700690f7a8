"""Tables of sums with noise, made to agree where they add up the same rows.

Every table of two columns has the same total, and each column's bins have the same sums in all
tables they are in. With noise they do not; the tables closest to those released that do agree have
less of it: of p columns, each one's own effect is the mean of p − 1, and the total of all tables.
"""

from collections.abc import Sequence

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.policies.trees.grid import Grid


def agreeing_cells(
    cells: FloatArray, grid: Grid, released: Sequence[tuple[int, int]]
) -> FloatArray:  # (n_cells, n_numbers), of the whole grid
    """The cells of a whole grid by least squares, from noisy ones (n_released, n_numbers).

    A table is its total, spread evenly, the effects of its two columns, and what is left, which it
    shares with no other table. What was not released is taken to have nothing of the last.
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
    """What tables have in common: a total, and an effect of each column's bins."""

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
        """What the total and effects say of a table, or of one column's line."""
        first, second = columns
        n_first = self._grid.n_bins[first]
        if first == second:
            return (self._effects[first] + self._total / n_first)[:, None]
        n_second = self._grid.n_bins[second]
        beside = self._effects[second][None] / n_first
        found: FloatArray = self._effects[first][:, None] / n_second + beside
        return found + self._total / (n_first * n_second)

    def left(self, columns: tuple[int, int]) -> FloatArray | float:
        """What a released table has beyond its own total and effects."""
        own = self._tables.get(columns)
        if own is None:
            return 0.0
        across = own.mean(axis=1, keepdims=True)
        found: FloatArray = own - across - own.mean(axis=0) + own.mean(axis=(0, 1))
        return found
