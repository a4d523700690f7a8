"""Protects a row that has nearly all of a term's sum of squares in one fold.

A hinge is zero but for rows beyond its knot. Over all rows these may be many, and yet in one fold
one of them may be further out than all others there together. In such a fold the term is set to
zero. Sums over all folds are released, too, and differencing gives sums of what was changed. So no
row may dominate these either: the term is set to zero in further folds until none does.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.client.disclosure.dominance import RowShares
from fedopl.client.disclosure.masking import Mask
from fedopl.client.disclosure.rare_values import RareValues
from fedopl.client.disk.passes import has_partitions, totals_of
from fedopl.client.rows.chunks import Chunk

# The rows of a chunk as sums over all folds have them, and as sums by fold have them so far.
BeforeAndAfter = tuple[Chunk, Chunk]


@dataclass(frozen=True, eq=False, kw_only=True)
class DominatedByFold:
    """The terms that are set to zero in some folds, and what a row dominates even so."""

    zeroed: Mask
    columns: BoolArray  # (n_terms + 1,) the outcome comes last

    @property
    def any(self) -> bool:
        """Whether one row has too much of what sums by fold would disclose."""
        return bool(self.columns.any())


NOTHING_DOMINATED = DominatedByFold(zeroed=Mask(), columns=np.zeros(0, np.bool_))


def dominated_by_fold(
    chunks: Iterable[BeforeAndAfter], n_folds: int, n_features: int, most: float
) -> DominatedByFold:
    """What to set to zero, so that no row has more than this share; features and outcomes stay."""
    about = None
    if has_partitions(chunks):
        about = next((_middle(after) for _, after in chunks if after.training.stop), None)
    found: _Shares | None = None
    for more in totals_of(chunks, partial(_shares, n_folds, about)):
        found = found.plus(more) if found and more else found or more
    return NOTHING_DOMINATED if found is None else found.judged(n_features, most)


@dataclass(frozen=True, eq=False)
class _Shares:
    """How much rests on one row, by fold and column."""

    before: RowShares  # of rows as sums over all folds have them
    after: RowShares  # as sums by fold have them
    apart: RowShares  # of the difference, which is zero in most rows

    def plus(self, other: "_Shares") -> "_Shares":
        return _Shares(
            self.before.plus(other.before),
            self.after.plus(other.after),
            self.apart.plus(other.apart),
        )

    def judged(self, n_features: int, most: float) -> DominatedByFold:
        too_much = self.after.in_cells > most  # (n_folds, n_columns)
        zeroed = np.zeros(too_much.shape, np.bool_)
        zeroed[:, n_features:-1] = too_much[:, n_features:-1]
        # What others add by differencing: the smallest sums first.
        order = np.argsort(self.before.sums, axis=0, kind="stable")
        for fold_of in order:
            changed = self._share_of_change(zeroed) > most
            changed[:n_features], changed[-1] = False, False
            zeroed[fold_of[changed], np.flatnonzero(changed)] = True
        left = (too_much & ~zeroed).any(axis=0) | (self._share_of_change(zeroed) > most)
        return DominatedByFold(zeroed=Mask(rare=_zeros(zeroed)), columns=left)

    def _share_of_change(self, zeroed: BoolArray) -> FloatArray:  # (n_columns,)
        """One row's share of all that differs between sums over all folds and sums by fold."""
        return self.before.of_cells(zeroed, others=self.apart)


def _zeros(zeroed: BoolArray) -> tuple[RareValues, ...]:
    n_folds = len(zeroed)
    return tuple(
        RareValues(feature=term, common=np.zeros(n_folds), masked=zeroed[:, term])
        for term in np.flatnonzero(zeroed.any(axis=0)).tolist()
    )


def _columns(chunk: Chunk) -> FloatArray:  # (n_training, n_terms + 1)
    rows, data = chunk.training, chunk.data
    return np.column_stack([data.contexts[rows], data.rewards[rows]])


def _middle(chunk: Chunk) -> FloatArray:  # (n_terms + 1,)
    middle: FloatArray = np.median(_columns(chunk), axis=0)
    return middle


def _shares(
    n_folds: int, about: FloatArray | None, chunks: Iterable[BeforeAndAfter]
) -> _Shares | None:
    """The shares in these chunks, about this centre, else that of the first, which will do."""
    found: _Shares | None = None
    for before, after in chunks:
        rows = after.training
        if not rows.stop:
            continue
        told = _columns(after)
        whole = told if before is after else _columns(before)
        if found is None:
            centre = _middle(after) if about is None else about
            nowhere = np.zeros(len(centre))
            found = _Shares(*(RowShares(n_folds, own) for own in (centre, centre, nowhere)))
        folds, weights = after.folds.of_row[rows].astype(np.int64), after.weights(rows)
        found.after.add(folds, told, weights)
        found.before.add(folds, whole, weights)
        if before is not after:
            found.apart.add(folds, whole - told, weights)
    return found
