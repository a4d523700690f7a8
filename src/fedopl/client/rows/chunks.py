"""Rows as answers go through them: all at once where they are in memory, else some at a time.

The rows of a chunk are in the order of their folds, and of their actions within a fold; those that
are set apart come last. So every split of them is a slice, which costs nothing to take.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.rows.folds import Folds
from fedopl.client.table.logged_data import LoggedData
from fedopl.messages.message import RowSplit

# Of rows on disk, so many are in memory at a time.
ROWS_PER_CHUNK = 1 << 15


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoredRows:
    """Rows to learn a tree from."""

    contexts: FloatArray  # (n_rows, n_features)
    scores: FloatArray  # (n_rows, n_actions), NaN where there is none
    weights: FloatArray | None  # (n_rows,)

    @cached_property
    def usable(self) -> BoolArray:  # (n_rows,)
        """The rows that have any score."""
        return np.asarray(np.isfinite(self.scores).any(axis=1))


@dataclass(frozen=True, eq=False, kw_only=True)
class Chunk:
    """Some rows, the fold that each is in, and their scores if there are any yet."""

    data: LoggedData
    folds: Folds
    scores: FloatArray  # (n_rows, n_actions), or no rows before any are scored

    def with_scores(self, scores: FloatArray) -> "Chunk":
        """The same rows with these scores."""
        return replace(self, scores=scores)

    def scored_rows(self) -> ScoredRows:
        """The training rows and their scores, to learn a tree from."""
        rows = self.training
        return ScoredRows(
            contexts=self.data.contexts[rows], scores=self.scores[rows], weights=self.weights(rows)
        )

    def with_data(self, data: LoggedData) -> "Chunk":
        """The same rows with other values."""
        return self if data is self.data else replace(self, data=data)

    @property
    def training(self) -> slice:
        """The rows that may be learned from."""
        return slice(0, self.folds.begins[-2])

    def rows(self, split: RowSplit) -> slice:
        """The rows of a split."""
        begins = self.folds.begins
        if split is RowSplit.EVALUATION:
            return slice(begins[-2], begins[-1])
        if split is RowSplit.VALIDATION:
            return slice(0, begins[1])
        return slice(begins[1] if split is RowSplit.FITTING else 0, begins[-2])

    def cells(self) -> IntArray:  # (n_rows,)
        """The fold and action of each row, as one number; rows set apart come behind all folds."""
        return cells_of(self.data, self.folds)

    def weights(self, rows: slice) -> FloatArray | None:  # (n_rows,)
        """What these rows weigh, None if all weigh the same."""
        return None if self.data.weights is None else self.data.weights[rows]

    def groups(self, rows: slice) -> IntArray | None:  # (n_rows,)
        """The groups of these rows, if there are any."""
        return None if self.data.groups is None else self.data.groups[rows]


def in_order(data: LoggedData, folds: Folds) -> tuple[IntArray, Chunk]:
    """A chunk of these rows, and from which place each of its rows came."""
    cells = cells_of(data, folds)
    n_cells = (folds.n_folds + 1) * data.n_actions
    # numpy sorts 16-bit numbers by counting them.
    order = np.argsort(cells.astype(np.uint16) if n_cells < 1 << 16 else cells, kind="stable")
    none = np.empty((0, data.n_actions))
    return order, Chunk(data=data.taken(order), folds=folds.taken(order), scores=none)


def cells_of(data: LoggedData, folds: Folds) -> IntArray:  # (n_rows,)
    """The fold and action of each row, as one number."""
    cells: IntArray = folds.of_row.astype(np.int64) * data.n_actions
    cells += data.actions
    return cells
