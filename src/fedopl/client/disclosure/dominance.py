"""The dominance rule: no released sum of squares may rest, for more than a share, on one row.

If one row has nearly all of Σ x_j², the sums of products Σ x_j·x_k are that row's other values
times a known number. So a number that is wrong by three digits would disclose its row. A reader of
the sums can measure columns from any origin. So squares are about the middle of each column.
"""

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray


class RowShares:
    """The largest share that one row has of any column's sum of squares, by cell and over all."""

    def __init__(self, n_cells: int, centre: FloatArray) -> None:
        self._centre = centre  # (n_columns,)
        self._largest = np.zeros((n_cells, len(centre)))
        self.sums = np.zeros((n_cells, len(centre)))

    def add(self, cells: IntArray, columns: FloatArray, weights: FloatArray | None) -> None:
        """Add rows (n_rows, n_columns) that are sorted by cell."""
        if not len(cells):
            return
        squares = np.square(columns - self._centre)
        if weights is not None:
            squares *= weights[:, None]
        starts = np.flatnonzero(np.diff(cells, prepend=-1))
        own = cells[starts]
        self._largest[own] = np.maximum(
            self._largest[own], np.maximum.reduceat(squares, starts, axis=0)
        )
        self.sums[own] += np.add.reduceat(squares, starts, axis=0)

    def plus(self, other: "RowShares") -> "RowShares":
        """Both together, which are about one centre; these are written over."""
        np.maximum(self._largest, other._largest, out=self._largest)
        np.add(self.sums, other.sums, out=self.sums)
        return self

    @property
    def in_cells(self) -> FloatArray:  # (n_cells, n_columns)
        """The largest share in each cell and column."""
        return _shares(self._largest, self.sums)

    def of_cells(self, chosen: BoolArray, others: "RowShares") -> FloatArray:  # (n_columns,)
        """The share of each column's sum over its chosen cells, and over all others of `others`."""
        largest = np.where(chosen, self._largest, others._largest).max(axis=0)
        sums = np.where(chosen, self.sums, others.sums).sum(axis=0)
        return _shares(largest, sums)

    @property
    def by_cell(self) -> FloatArray:  # (n_cells,)
        """The largest share in each cell, over all columns."""
        largest: FloatArray = self.in_cells.max(axis=1)
        return largest

    @property
    def by_column(self) -> FloatArray:  # (n_columns,)
        """The share of each column's sum over all cells."""
        return _shares(self._largest.max(axis=0), self.sums.sum(axis=0))


def _shares(largest: FloatArray, sums: FloatArray) -> FloatArray:
    """The shares, zero where a sum is zero."""
    return np.divide(largest, sums, out=np.zeros_like(sums), where=sums > 0)
