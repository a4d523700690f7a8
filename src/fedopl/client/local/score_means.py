"""Means over a client's training rows: all that oracles without local steps need."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray, frozen
from fedopl.client.disk.passes import totals_of
from fedopl.client.rows.chunk_reader import IntoTerms
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.client.rows.study_rows import StudyRows
from fedopl.client.table.logged_data import LoggedData
from fedopl.messages.message import RowSplit
from fedopl.policies.pairwise import action_pairs

# Large enough to outweigh the calls, small enough that a block stays in a core's cache.
ROWS_VALUED_AT_ONCE = 8192
_ONES = frozen(np.ones(ROWS_VALUED_AT_ONCE))


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoreMeans:
    """Weighted means over rows; `grams` has one matrix if all actions have the same rows."""

    grams: FloatArray  # (1 or n_actions, n_columns, n_columns)
    products: FloatArray  # (n_actions, n_columns)
    squares: FloatArray  # (n_actions,)
    shares: FloatArray  # (n_actions,)


class ScoreTotals:
    """Sums of φφᵀ, φ·Γ̂(a) and Γ̂(a)² over the rows that have a score for the action.

    If all rows have all scores (`complete`), one sum of squares serves all actions. `columns` picks
    each action's own features, if not all.
    """

    def __init__(
        self, n_actions: int, n_terms: int, columns: list[IntArray] | None, *, complete: bool
    ) -> None:
        self._columns, self._complete = columns, complete and columns is None
        width = n_terms + 1 if columns is None else len(columns[0]) + 1
        self._grams = np.zeros((1 if self._complete else n_actions, width, width))
        self._products = np.zeros((n_actions, width))
        self._squares, self._weights = np.zeros(n_actions), np.zeros(n_actions)
        self._total = 0.0

    def add(self, data: LoggedData, scores: FloatArray, rows: slice) -> None:
        """Add these rows."""
        for features, gamma, weight in _blocks(data, scores, rows):
            self._total += weight.sum()
            if self._complete:
                weighted = features if (weight == 1).all() else features * weight[:, None]
                self._grams[0] += weighted.T @ features
                self._add_products(features[:, :-1], gamma, weight)
            else:
                self._add_known(features, gamma, weight)

    def add_without_squares(self, data: LoggedData, scores: FloatArray, rows: slice) -> None:
        """Add these rows, whose Σ w·φφᵀ is known already; nothing of them is copied."""
        for start in range(rows.start, rows.stop, ROWS_VALUED_AT_ONCE):
            block = slice(start, min(start + ROWS_VALUED_AT_ONCE, rows.stop))
            weight = None if data.weights is None else data.weights[block]
            self._add_products(data.contexts[block], scores[block], weight)

    def _add_products(
        self, contexts: FloatArray, gamma: FloatArray, weight: FloatArray | None
    ) -> None:
        weighted = gamma if weight is None else gamma * weight[:, None]
        self._products[:, :-1] += weighted.T @ contexts
        # Faster than sums along the rows, because each row has only a few numbers.
        self._products[:, -1] += _ONES[: len(gamma)] @ weighted
        self._squares += np.einsum("ij,ij->j", weighted, gamma)
        # Here every action has every row.
        self._weights += len(gamma) if weight is None else weight.sum()

    def _add_known(self, features: FloatArray, gamma: FloatArray, weight: FloatArray) -> None:
        weighted = features * weight[:, None]
        known = np.isfinite(gamma)
        gamma = np.where(known, gamma, 0.0)
        self._squares += weight @ gamma**2
        self._weights += weight @ known
        if self._columns is None:
            self._products += gamma.T @ weighted
            _add_grams(self._grams, features, weighted, known)
            return
        for action, own in enumerate(self._columns):
            mine = [*own, -1]
            self._products[action] += gamma[:, action] @ weighted[:, mine]
            _add_grams(
                self._grams[action : action + 1],
                features[:, mine],
                weighted[:, mine],
                known[:, action : action + 1],
            )

    def plus(self, other: "ScoreTotals") -> "ScoreTotals":
        """Both together; these are written over."""
        for name in ("_grams", "_products", "_squares", "_weights"):
            total = getattr(self, name)
            np.add(total, getattr(other, name), out=total)
        self._total += other._total
        return self

    def add_squares(self, squares: FloatArray) -> None:
        """Add Σ w·φφᵀ of rows that were added without."""
        self._grams[0] += squares
        self._total += squares[-1, -1]

    def means(self) -> ScoreMeans:
        """The means over all rows added."""
        safe = np.where(self._weights > 0, self._weights, 1.0)
        return ScoreMeans(
            grams=self._grams / safe[: len(self._grams), None, None],
            products=self._products / safe[:, None],
            squares=self._squares / safe,
            shares=self._weights / (self._total or 1.0),
        )


def means_of(
    parts: Callable[[], Iterable[ScoredChunk]],
    rows: StudyRows,
    columns: list[IntArray] | None,
    *,
    complete: bool,
) -> ScoreMeans:
    """The means over all training rows, accumulated over scored chunks."""
    new = partial(ScoreTotals, rows.given.n_actions, rows.n_terms, columns, complete=complete)
    squares = rows.squares_by_fold.sum(axis=0) if complete and columns is None else None
    total: Any = None  # until the first partition
    for found in totals_of(
        parts(),
        partial(_totals_in, new, rows.into_terms, complete=complete, known=squares is not None),
    ):
        if found is None:
            return means_of(parts, rows, columns, complete=False)
        total = found if total is None else total.plus(found)
    if squares is not None:
        total.add_squares(squares)
    means: ScoreMeans = total.means()
    return means


def _totals_in(
    new: Callable[[], ScoreTotals],
    into_terms: IntoTerms,
    chunks: Iterable[ScoredChunk],
    *,
    complete: bool,
    known: bool,
) -> ScoreTotals | None:
    """Totals over these chunks; None if they should be complete, and are not.

    Squares are left out where they are known.
    """
    totals = new()
    for chunk in chunks:
        training = chunk.scores[chunk.training]
        if complete and np.count_nonzero(np.isfinite(training)) < training.size:
            return None
        for own, part in into_terms(chunk):
            add = totals.add_without_squares if known else totals.add
            add(part.data, chunk.scores[own], part.training)
    return totals


def _add_grams(
    grams: FloatArray, features: FloatArray, weighted: FloatArray, known: BoolArray
) -> None:
    """Add Σ w·φφᵀ over each action's known rows; actions with the same rows share one product."""
    patterns: dict[bytes, FloatArray] = {}
    for gram, column in zip(grams, known.T, strict=True):
        pattern = np.packbits(column).tobytes()
        if pattern not in patterns:
            patterns[pattern] = (
                weighted.T @ features if column.all() else weighted[column].T @ features[column]
            )
        gram += patterns[pattern]


def pair_means(
    chunks: Iterable[ScoredChunk], n_actions: int, n_features: int
) -> tuple[FloatArray, FloatArray]:
    """For each pair of actions, means of w·zzᵀ and w·z·s: which is better (s), by how much (w)."""
    pairs, width = action_pairs(n_actions), n_features + 1
    grams, products = np.zeros((len(pairs), width, width)), np.zeros((len(pairs), width))
    total = 0.0
    for chunk in chunks:
        for features, gamma, weight in _blocks(chunk.data, chunk.scores, chunk.training):
            total += weight.sum()
            for pair, (first, second) in enumerate(pairs):
                # A row that lacks one of both scores does not count.
                gain = np.nan_to_num(gamma[:, first] - gamma[:, second]) * weight
                grams[pair] += (features * np.abs(gain)[:, None]).T @ features
                products[pair] += gain @ features
    return grams / total, products / total


def value_slope(
    chunks: Iterable[ScoredChunk], parameters: FloatArray, temperature: float
) -> FloatArray:  # shaped as parameters
    """The gradient of a softmax policy's mean score over training rows without the first fold."""
    slope, total = np.zeros_like(parameters), 0.0
    for chunk in chunks:
        rows = chunk.rows(RowSplit.FITTING)
        for features, gamma, weight in _blocks(chunk.data, chunk.scores, rows):
            total += weight.sum()
            known = np.isfinite(gamma)
            logits = np.where(known, features @ parameters.T / temperature, -np.inf)
            # This leaves the softmax unchanged, and no exponential overflows.
            logits -= logits.max(axis=1, keepdims=True)
            chances = np.exp(logits)
            chances /= chances.sum(axis=1, keepdims=True)
            gains = np.where(known, gamma, 0.0)
            value = (chances * gains).sum(axis=1, keepdims=True)
            pull = chances * (gains - value) * weight[:, None]
            slope += pull.T @ features / temperature
    # An action without any score has no pull, whatever the parameters are.
    return slope / total


def _blocks(
    data: LoggedData, scores: FloatArray, rows: slice
) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
    """Blocks of (x, 1), of scores and of weights, for those of these rows that have any score."""
    for start in range(rows.start, rows.stop, ROWS_VALUED_AT_ONCE):
        block = slice(start, min(start + ROWS_VALUED_AT_ONCE, rows.stop))
        scored = np.isfinite(scores[block]).any(axis=1)
        n_wanted = int(np.count_nonzero(scored))
        if not n_wanted:
            continue
        wanted = slice(None) if n_wanted == block.stop - block.start else scored
        features = np.ones((n_wanted, data.n_features + 1))
        features[:, :-1] = data.contexts[block][wanted]
        weight = np.ones(len(features)) if data.weights is None else data.weights[block][wanted]
        yield features, scores[block][wanted], weight
