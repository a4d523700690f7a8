"""Rows as answers go through them: all at once where they are in memory, else some at a time."""

from dataclasses import dataclass

import numpy as np

from fedopl.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.folds import Folds
from fedopl.client.logged_data import LoggedData
from fedopl.wire.vocabulary import Split

# Of rows on disk, so many are in memory at a time.
ROWS_PER_CHUNK = 1 << 17


@dataclass(frozen=True, eq=False, kw_only=True)
class Chunk:
    """Some rows, the fold that each is in, and their scores if there are any yet."""

    data: LoggedData
    folds: Folds
    scores: FloatArray  # (n_rows, n_actions), or no rows before any are scored

    @property
    def training(self) -> BoolArray:  # (n_rows,)
        """The rows that may be learned from."""
        return ~self.folds.set_apart

    def rows(self, split: Split) -> BoolArray:  # (n_rows,)
        """The rows of a split."""
        if split is Split.TRAINING:
            return self.training
        if split is Split.EVALUATION:
            return self.folds.set_apart
        first: BoolArray = self.folds.of_row == 0
        return first if split is Split.VALIDATION else self.training & ~first

    def cells(self) -> IntArray:  # (n_rows,)
        """The fold and action of each row, as one number; rows set apart come behind all folds."""
        cells: IntArray = self.folds.of_row.astype(np.int64) * self.data.n_actions
        return cells + self.data.actions

    def weights(self, rows: BoolArray) -> FloatArray | None:  # (n_rows,)
        """What these rows weigh, None if all weigh the same."""
        return None if self.data.weights is None else self.data.weights[rows]

    def groups(self, rows: BoolArray) -> IntArray | None:  # (n_rows,)
        """The groups of these rows, if there are any."""
        return None if self.data.groups is None else self.data.groups[rows]
