"""Small cells: which counts and sums may be released without disclosing a few rows.

Several queries release sums of the same rows. So differencing could recover what one of them
suppresses. Hence one rule holds throughout: what is released, what is suppressed, and what two
answers differ in rest either on no row or on enough rows.
"""

from collections.abc import Iterable

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.messages.refusal import RefusalCode

ROWS_PER_COUNT = 8192


def suppress_small_counts(counts: IntArray, minimum: int) -> IntArray:  # shaped as counts
    """The counts with small ones set to zero, and the next smallest if only one would be zero.

    A single suppressed count is the total less the others. So it needs secondary suppression.
    """
    if counts.min() >= minimum:
        return counts
    kept = counts * (counts >= minimum)
    if np.sum(kept < counts) == 1:
        kept[np.argmin(np.where(kept > 0, kept, np.inf))] = 0
    return kept


def releasable_cells(counts: IntArray, needed: int) -> BoolArray:  # (n_folds, n_actions)
    """Cells whose sums may be released; neither a fold nor all folds suppress only a few rows."""
    if counts.min() >= needed:
        return np.ones(counts.shape, np.bool_)
    releasable = np.stack([_releasable_in_fold(fold, needed) for fold in counts])
    for fold in np.argsort(counts.sum(axis=1)):
        if not 0 < int(counts[~releasable].sum()) < needed:
            break
        releasable[fold] = False
    return releasable


def _releasable_in_fold(counts: IntArray, needed: int) -> BoolArray:  # (n_actions,)
    releasable: BoolArray = counts >= needed
    for action in np.argsort(counts):
        suppressed = int(counts[~releasable].sum())
        if suppressed == 0 or suppressed >= needed:
            break
        releasable[action] = False
    return releasable


class ScoreCounts:
    """How many training rows have a score for each action, and for both of each two actions."""

    def __init__(self, n_actions: int) -> None:
        self.n_rows = 0
        self.both = np.zeros((n_actions, n_actions))

    def add(self, scores: FloatArray) -> None:
        """Count these rows."""
        self.n_rows += len(scores)
        for start in range(0, len(scores), ROWS_PER_COUNT):
            known = np.isfinite(scores[start : start + ROWS_PER_COUNT])
            if np.count_nonzero(known) == known.size:
                self.both += len(known)
            else:
                counted = known.astype(np.float64)
                self.both += counted.T @ counted

    def plus(self, other: "ScoreCounts") -> "ScoreCounts":
        """Both together; this one is written over."""
        self.n_rows += other.n_rows
        np.add(self.both, other.both, out=self.both)
        return self

    @property
    def are_complete(self) -> bool:
        """Whether all rows have all scores."""
        return bool(np.count_nonzero(self.both == self.n_rows) == self.both.size)

    def to_suppress(self, needed: int) -> BoolArray:  # (n_actions,)
        """The actions whose scores only a few rows lack.

        Refused if another action has only a few scores, or if two actions have scores in nearly the
        same rows. The difference of their sums would disclose the rows that they do not share.
        """
        if self.are_complete and (self.n_rows >= needed or self.n_rows == 0):
            return np.zeros(len(self.both), np.bool_)
        counts = np.diagonal(self.both)
        missing = self.n_rows - counts
        few: BoolArray = (missing > 0) & (missing < needed)
        counts = np.where(few, 0, counts)
        if ((counts > 0) & (counts < needed)).any():
            raise RefusedError(RefusalCode.SMALL_CELLS)
        partly = np.flatnonzero((counts > 0) & (counts < self.n_rows))
        differ = counts[partly, None] + counts[partly] - 2 * self.both[np.ix_(partly, partly)]
        if ((differ > 0) & (differ < needed)).any():
            raise RefusedError(RefusalCode.SMALL_CELLS)
        return few


def check_takers(counts: IntArray, minimum: int) -> None:
    """Refuse sums of scores by part if only a few rows of some part took an action.

    `counts` (n_parts, n_actions) are training rows. The server knows the model. Without the model's
    part, the sums of an action's scores are those of the rows that took it. Actions that few rows
    took anywhere are scored by the model alone, so no row stands out in their sums.
    """
    corrected = counts[:, counts.sum(axis=0) >= minimum]
    if ((corrected > 0) & (corrected < minimum)).any():
        raise RefusedError(RefusalCode.SMALL_CELLS)


def check_parts(parts: Iterable[ScoreCounts], needed: int) -> None:
    """Refuse sums by part of the rows if differencing by known scores would give a few rows.

    Sums are over the rows that have a score for an action. In each part, an action must have scores
    in no row or enough rows, and lack them in no row or enough rows. The rows with scores for two
    actions must be the same, or differ in enough rows.
    """
    for part in parts:
        counts = np.diagonal(part.both)
        between = counts[:, None] + counts - 2 * part.both
        differ = np.concatenate([[part.n_rows], counts, part.n_rows - counts, between.ravel()])
        if ((differ > 0) & (differ < needed)).any():
            raise RefusedError(RefusalCode.SMALL_CELLS)
