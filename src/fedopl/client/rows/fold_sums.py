"""Sums for each fold and action, in one pass over the rows; linear models are solved from them.

The models of a fold are solved from the sums of all other folds. So K folds cost one pass.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import FloatArray, IntArray, ascends
from fedopl.base.one_thread import enough_threads
from fedopl.client.rows.folds import Folds
from fedopl.client.table.logged_data import LoggedData
from fedopl.solvers.least_squares import LinearModels

# Large enough that arithmetic outweighs the calls, small enough to stay in a core's cache.
ROWS_SUMMED_AT_ONCE = 8192
# Sums with more bytes are not kept, and not shifted all at once.
MANY_BYTES = 1 << 24
ROWS_FOR_MIDDLE = 100


@dataclass(frozen=True, eq=False, kw_only=True)
class FoldSums:
    """Σ w·z zᵀ with z = (x − x₀, 1, y − y₀), for each fold and action."""

    sums: FloatArray  # (n_folds, n_actions, n_columns + 2, n_columns + 2)
    squared_weights: FloatArray  # (n_folds, n_actions)
    origin: FloatArray  # (n_features + 1,)  x₀ and y₀
    columns: list[IntArray] | None  # each action's own features, None if all are

    def copied(self) -> "FoldSums":
        """The same in arrays of their own, to add to."""
        return replace(self, sums=self.sums.copy(), squared_weights=self.squared_weights.copy())

    def plus(self, other: "FoldSums") -> "FoldSums":
        """Both together, which are about one origin; these are written over."""
        np.add(self.sums, other.sums, out=self.sums)
        return replace(self, squared_weights=self.squared_weights + other.squared_weights)


def no_sums(data: LoggedData, folds: Folds) -> FoldSums:
    """Sums of no rows, about the middle of these."""
    shape, width = (folds.n_folds, data.n_actions), data.n_features + 2
    return FoldSums(
        sums=np.zeros((*shape, width, width)),
        squared_weights=np.zeros(shape),
        origin=middle_of(data, folds),
        columns=None,
    )


def fold_sums(
    data: LoggedData,
    folds: Folds,
    columns: list[IntArray] | None = None,
    onto: FoldSums | None = None,
) -> FoldSums:
    """The sums over all rows, in one pass; `columns` picks each action's own features, if not all.

    Sums are about the middle of these rows, unless they are added `onto` those of other rows.
    """
    width = data.n_features if columns is None else len(columns[0])
    n_places = folds.n_folds * data.n_actions
    if onto is None:
        origin, sums = middle_of(data, folds), np.zeros((n_places, width + 2, width + 2))
    else:
        origin, sums = onto.origin, onto.sums.reshape(n_places, width + 2, width + 2)
    begun = [onto is not None] * n_places
    # A row's place in the sums is its fold and action; the last, of held-out rows, is left out.
    places = folds.of_row.astype(np.int64) * data.n_actions + data.actions
    np.minimum(places, n_places, out=places)
    rows_at_once = min(data.n_rows, ROWS_SUMMED_AT_ONCE) / n_places
    with enough_threads(rows_at_once * (width + 2) ** 2):
        for rows, edges in _augmented(data, origin, places, n_places):
            for place, (start, stop) in enumerate(pairwise(edges.tolist())):
                if start == stop:
                    continue
                z = rows[start:stop]
                if columns is not None:
                    z = z[:, [*columns[place % data.n_actions], -2, -1]]
                if begun[place]:
                    sums[place] += z.T @ z
                else:
                    # Written over the zeros, which saves a temporary array of the same size.
                    np.dot(z.T, z, out=sums[place])
                    begun[place] = True
    shape = (folds.n_folds, data.n_actions)
    squares = None if data.weights is None else data.weights**2
    squared = np.bincount(places, squares, n_places)[:n_places].astype(float).reshape(shape)
    return FoldSums(
        sums=sums.reshape(*shape, width + 2, width + 2),
        squared_weights=squared if onto is None else onto.squared_weights + squared,
        origin=origin,
        columns=columns,
    )


def squares_by_fold(sums: FoldSums) -> FloatArray:  # (n_folds, n_columns + 1, n_columns + 1)
    """Σ w·(x, 1)(x, 1)ᵀ over the rows of each fold, of all actions together."""
    total = sums.sums.sum(axis=1)[:, :-1, :-1]
    if np.count_nonzero(sums.origin[:-1]):
        origin = np.append(sums.origin[:-1], 0.0)
        moved = total[:, -1] + total[:, -1, -1:] / 2 * origin
        shift = origin[:, None] * moved[:, None, :]
        total = total + shift + shift.swapaxes(-1, -2)
    return np.asarray(total)


def measured_from_zero(sums: FoldSums) -> FloatArray:  # shaped as its sums
    """Σ w·z zᵀ with z = (x, 1, y), written over the sums about the origin."""
    origin = np.zeros(len(sums.origin) + 1)
    origin[:-2], origin[-1] = sums.origin[:-1], sums.origin[-1]  # the constant in z stays
    first = int((origin != 0).argmax())  # often only the reward's column
    every = sums.sums.reshape(-1, len(origin), len(origin))
    # One fold at a time if they are large together.
    at_once = len(every) if every.nbytes <= MANY_BYTES else sums.sums.shape[1]
    for start in range(0, len(every), at_once):
        own = every[start : start + at_once]
        moved = own[:, -2] + own[:, -2, -2, None] / 2 * origin
        shift = origin[first:, None] * moved[:, None]
        own[:, first:] += shift
        own[:, :, first:] += shift.swapaxes(1, 2)
    return sums.sums


def predict(data: LoggedData, folds: Folds, models: LinearModels) -> FloatArray:
    """μ̂(x; a) for every action, for each row by the models that never saw its fold."""
    means = np.empty((data.n_rows, data.n_actions))
    if folds.ascend:
        every = map(slice, folds.begins, folds.begins[1:])
        for part, own in zip(range(len(models.intercepts)), every, strict=False):
            predicted = means[own]
            np.dot(data.contexts[own], models.coefficients[part].T, out=predicted)
            predicted += models.intercepts[part]
        return means
    buffer = np.empty((min(ROWS_SUMMED_AT_ONCE, data.n_rows), data.n_features))
    for start, order, edges in _sorted_blocks(folds.of_row, len(models.intercepts)):
        block = slice(start, start + len(order))
        # With mode="raise", numpy would first fill a buffer of its own.
        rows = np.take(data.contexts[block], order, axis=0, out=buffer[: len(order)], mode="clip")
        predicted = np.empty((len(order), data.n_actions))
        for fold in np.flatnonzero(np.diff(edges)):
            own = slice(edges[fold], edges[fold + 1])
            np.matmul(rows[own], models.coefficients[fold].T, out=predicted[own])
            predicted[own] += models.intercepts[fold]
        means[block][order] = predicted
    return means


def middle_of(data: LoggedData, folds: Folds) -> FloatArray:  # (n_features + 1,)
    """A point near the middle of training rows: sums of squares about a far zero lose digits."""
    some = slice(None, None, max(1, data.n_rows // ROWS_FOR_MIDDLE))
    sample, rewards = data.contexts[some], data.rewards[some]
    if folds.n_parts > folds.n_folds:
        learned_from = folds.of_row[some] < folds.n_folds
        if np.count_nonzero(learned_from) < len(learned_from):
            sample, rewards = sample[learned_from], rewards[learned_from]
    found = np.zeros(data.n_features + 1)
    if not len(rewards):
        return found
    middle = sample.sum(axis=0) / len(sample)
    squares = middle**2
    variance = np.einsum("ij,ij->j", sample, sample) / len(sample) - squares
    # A feature near zero stays as it is, so that nothing is subtracted from its column.
    middle[squares <= 100 * variance] = 0.0
    half, ordered = len(rewards) // 2, rewards.copy()
    ordered.partition(half)
    found[:-1], found[-1] = middle, ordered[half]
    return found


def _augmented(
    data: LoggedData, origin: FloatArray, places: IntArray, n_places: int
) -> Iterator[tuple[FloatArray, IntArray]]:
    """Blocks of √w·z, sorted by place, and where each place begins; the fastest of three ways."""
    if ascends(places):
        return _blocks_of_sorted(data, origin, places, n_places)
    # With many places, a block has few rows of each, and adding up squares would take longest.
    if n_places * data.n_features > ROWS_SUMMED_AT_ONCE:
        order = np.argsort(places, kind="stable")
        return _blocks_of_sorted(data, origin, places[order], n_places, order)
    return _augmented_blocks(data, origin, places, n_places)


def _blocks_of_sorted(
    data: LoggedData,
    origin: FloatArray,
    places: IntArray,
    n_places: int,
    order: IntArray | None = None,
) -> Iterator[tuple[FloatArray, IntArray]]:
    """Blocks of rows that are already sorted by place, or that are taken in this order.

    The latter reads from all over the table: slower, but it brings the rows of a place together.
    """
    sorted_rows = np.empty((min(ROWS_SUMMED_AT_ONCE, data.n_rows), data.n_features + 2))
    bounds = places.searchsorted(np.arange(n_places + 1))
    for start in range(0, bounds[-1], ROWS_SUMMED_AT_ONCE):
        stop = min(start + ROWS_SUMMED_AT_ONCE, bounds[-1])
        own = slice(start, stop) if order is None else order[start:stop]
        z = sorted_rows[: stop - start]
        z[:, :-2] = data.contexts[own]
        _augment(z, data, origin, own)
        # The usual case of few rows, which are one block, is as it is.
        are_all = stop - start == bounds[-1]
        yield z, bounds if are_all else np.minimum(np.maximum(bounds - start, 0), stop - start)


def _augment(z: FloatArray, data: LoggedData, origin: FloatArray, rows: IntArray | slice) -> None:
    """Turn contexts, the first columns of z, into √w·z; z is overwritten."""
    if np.count_nonzero(origin[:-1]):
        z[:, :-2] -= origin[:-1]
    z[:, -2] = 1.0
    z[:, -1] = data.rewards[rows] - origin[-1]
    if data.weights is not None:
        # The root of a weight appears on both sides of a product, which makes the whole weight.
        z *= np.sqrt(data.weights[rows])[:, None]


def _augmented_blocks(
    data: LoggedData, origin: FloatArray, places: IntArray, n_places: int
) -> Iterator[tuple[FloatArray, IntArray]]:
    """Blocks of rows in any order, each block sorted by itself."""
    width = data.n_features + 2
    as_logged = np.empty((min(ROWS_SUMMED_AT_ONCE, data.n_rows), width))
    sorted_rows = np.empty_like(as_logged)
    for start, order, edges in _sorted_blocks(places, n_places):
        block = slice(start, start + len(order))
        z = as_logged[: len(order)]
        z[:, :-2] = data.contexts[block]
        _augment(z, data, origin, block)
        yield np.take(z, order, axis=0, out=sorted_rows[: len(order)], mode="clip"), edges


def _sorted_blocks(
    places: NDArray[np.integer], n_places: int
) -> Iterator[tuple[int, IntArray, IntArray]]:
    """For each block of rows: its start, the order that sorts it by place, where places begin."""
    if n_places < 2**16:  # numpy uses a counting sort for 16-bit numbers
        places = places.astype(np.uint16, copy=False)
    bounds = np.arange(n_places + 1)
    for start in range(0, len(places), ROWS_SUMMED_AT_ONCE):
        block = places[start : start + ROWS_SUMMED_AT_ONCE]
        order = np.argsort(block, kind="stable")
        yield start, order, np.searchsorted(block[order], bounds)
