"""How many rows a sum effectively rests on: (Σ|u|)²/Σu², where u is what each row adds to it."""

from typing import Any

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray


class EffectiveRows:
    """Effective rows behind each column of pulls, for rows that arrive in blocks."""

    def __init__(self) -> None:
        self._largest: Any = 0.0
        self._sums: Any = 0.0  # in units of the largest, like the squares
        self._squares: Any = 0.0

    def add(self, pulls: FloatArray) -> None:
        """Add these rows (n_rows, n_columns)."""
        sizes = np.abs(pulls)
        before, largest = self._largest, sizes.max(axis=0, initial=0.0)
        # NaN stays, and leads to a refusal.
        self._largest = np.maximum(before, largest)
        unit = np.where(self._largest == 0, 1.0, self._largest)
        # Divided before squaring, so that tiny pulls do not vanish.
        shares, shrunk = sizes / unit, before / unit
        self._sums = self._sums * shrunk + shares.sum(axis=0)
        self._squares = self._squares * shrunk**2 + (shares**2).sum(axis=0)

    def fewest(self, columns: BoolArray | None = None) -> float:
        """The effective rows of the column with the fewest, among these columns or all.

        A column of zeros rests on no row. It shows that a model is sure of every row. Such a model
        divides rows as sharply as its sender likes, and the zeros would confirm that.
        """
        if np.ndim(self._largest) == 0:
            return 0.0  # no row was added
        among = np.ones(len(self._largest), bool) if columns is None else columns
        if not np.all(self._largest[among]):
            return 0.0
        effective: FloatArray = self._sums[among] ** 2 / self._squares[among]
        return float(effective.min(initial=np.inf))

    def fewest_without_zeros(self) -> float:
        """The same without columns of zeros, where the zeros come from the client itself."""
        return self.fewest(np.asarray(self._largest != 0))
