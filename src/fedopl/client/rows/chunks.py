"""Chunks: some rows with their folds. All code processes the rows of a client in chunks.

Rows in memory are one chunk. Rows on disk are many chunks, one after the other. A study sorts the
rows of a chunk by fold, and by action within a fold, with held-out rows last. So every split is a
slice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.computed_once import computed_once
from fedopl.client.rows.folds import Folds
from fedopl.client.table.logged_data import ROW_ARRAYS, LoggedData, trusted
from fedopl.messages.message import RowSplit, kept_back

# Rows on disk are read in chunks of this many.
ROWS_PER_CHUNK = 1 << 15


@dataclass(frozen=True, eq=False, kw_only=True)
class Chunk:
    """Some rows, and the fold that each is in."""

    data: LoggedData
    folds: Folds

    @property
    def given(self) -> LoggedData:
        """The same rows, under the name that a study has for all of its rows."""
        return self.data

    def sample(self, most: int) -> "Chunk":  # noqa: ARG002
        """All rows: a single chunk is in memory, so models are fitted to all of it."""
        return self

    def with_scores(self, scores: FloatArray) -> "ScoredChunk":
        """The same rows with these scores."""
        return ScoredChunk(data=self.data, folds=self.folds, scores=scores)

    def taken(self, order: IntArray) -> "Chunk":
        """These rows in this order."""
        return Chunk(data=self.data.taken(order), folds=self.folds.taken(order))

    @property
    def training(self) -> slice:
        """The training rows; like all slices, this needs sorted rows."""
        return slice(0, self.folds.begins[-2])

    @property
    def fold_slices(self) -> list[slice]:
        """The rows of each fold, if all are in memory and sorted."""
        begins = self.folds.begins[: self.folds.n_folds + 1]
        return [slice(start, stop) for start, stop in pairwise(begins)]

    def training_rows(self, action: int, without: int | None = None) -> IntArray:
        """The places of training rows that took this action, perhaps without those of a fold."""
        took = self.data.actions[self.training] == action
        if without is not None:
            took[self.fold_slices[without]] = False
        return np.flatnonzero(took)

    def rows(self, split: RowSplit, without: int | None = None) -> slice:
        """The rows of a split, in a chunk that has none of a fold if it is given."""
        begins, first = self.folds.begins, kept_back(without)
        if split is RowSplit.EVALUATION:
            return slice(begins[-2], begins[-1])
        if split is RowSplit.ALL:
            return slice(0, begins[-1])
        if split is RowSplit.VALIDATION:
            return slice(begins[first], begins[first + 1])
        return slice(begins[first + 1] if split is RowSplit.FITTING else 0, begins[-2])

    @property
    def fold_actions(self) -> IntArray:  # (n_rows,)
        """The fold and action of each row, as one number; held-out rows come after all folds."""
        numbers: IntArray = self.folds.of_row.astype(np.int64) * self.data.n_actions
        numbers += self.data.actions
        return numbers

    @property
    def weight_by_fold_action(self) -> FloatArray:  # (n_folds + 1, n_actions)
        """The weight of the rows of each fold that took each action; held-out rows come last."""
        shape = (self.folds.n_folds + 1, self.data.n_actions)
        found = np.bincount(self.fold_actions, self.data.weights, shape[0] * shape[1])
        return found.reshape(shape).astype(np.float64)

    def weights(self, rows: slice) -> FloatArray | None:  # (n_rows,)
        """The weights of these rows, None if all weigh the same."""
        return None if self.data.weights is None else self.data.weights[rows]


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoredRows:
    """Rows to learn a tree from."""

    contexts: FloatArray  # (n_rows, n_features)
    scores: FloatArray  # (n_rows, n_actions), NaN where there is none
    weights: FloatArray | None  # (n_rows,)

    def taken(self, which: BoolArray) -> "ScoredRows":
        """Some of the rows."""
        weights = None if self.weights is None else self.weights[which]
        return ScoredRows(contexts=self.contexts[which], scores=self.scores[which], weights=weights)

    @computed_once
    def usable(self) -> BoolArray:  # (n_rows,)
        """The rows that have any score."""
        return np.asarray(np.isfinite(self.scores).any(axis=1))


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoredChunk(Chunk):
    """A chunk with the scores of its rows."""

    scores: FloatArray  # (n_rows, n_actions), NaN where there is none

    def without_fold(self, fold: int | None) -> "ScoredChunk":
        """The same rows but those of a fold, if one is given."""
        if fold is None:
            return self
        kept = np.flatnonzero(self.folds.of_row != fold)
        return self.taken(kept).with_scores(self.scores[kept])

    def scored_rows(self, without: int | None = None) -> ScoredRows:
        """The training rows with scores to learn from; without those of a fold if it is given."""
        rows = self.training
        found = ScoredRows(
            contexts=self.data.contexts[rows], scores=self.scores[rows], weights=self.weights(rows)
        )
        return found if without is None else found.taken(self.folds.of_row[rows] != without)


def sorted_order(
    folds: NDArray[np.uint16], actions: IntArray, n_folds: int, n_actions: int
) -> IntArray:  # (n_rows,)
    """The order that sorts rows by fold and action; rows that agree in both keep their order."""
    numbers = folds.astype(np.int64) * n_actions + actions
    # numpy uses a counting sort for 16-bit numbers.
    few = numbers.astype(np.uint16) if (n_folds + 1) * n_actions < 1 << 16 else numbers
    return few.argsort(kind="stable")


def joined(chunks: Sequence[Chunk]) -> Chunk:
    """One chunk of all these rows."""
    first = chunks[0]
    if len(chunks) == 1:
        return first

    def together(name: str) -> Any:
        parts = [getattr(chunk.data, name) for chunk in chunks]
        return None if parts[0] is None else np.concatenate(parts)

    arrays = {name: together(name) for name in ROW_ARRAYS}
    names = first.data.action_names, first.data.feature_names
    data = trusted(arrays, *names, outcome_names=first.data.outcome_names)
    of_row = np.concatenate([chunk.folds.of_row for chunk in chunks])
    return Chunk(data=data, folds=first.folds.with_rows(of_row))
