"""Sums over the cells of a grid: one pass over the rows for each pair of columns, in blocks.

A table of cells is a product of two matrices. One has a one where a row is in a cell, the other has
the numbers of each row. The first is sparse, with one entry per row. So the product adds each row
to its cell, in the order of the rows, whatever the number of threads.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.disk.passes import mapped, totals_of
from fedopl.client.local.obeyed_scores import ObeyedScores
from fedopl.client.rows.chunks import ScoredChunk, ScoredRows
from fedopl.client.scoring.propensity import Predict
from fedopl.policies.tree_columns import Column
from fedopl.policies.trees.grid import Grid
from fedopl.policies.trees.growing import DONE, EVERYBODY
from fedopl.policies.trees.nodes import Branch, Leaf, Node, leaf_positions, leaves_of, nodes_of
from fedopl.policies.trees.second_look import NEAR_BINS, SecondLook
from fedopl.policies.trees.tree_plan import MOST_BINS

ROWS_BINNED_AT_ONCE = 1 << 16
# Fewer rows than this are not worth a thread.
ROWS_PER_THREAD = 1 << 14

Bins = NDArray[Any]  # small whole numbers


@dataclass(frozen=True, eq=False, kw_only=True)
class Binning:
    """How the cell of a row is found: by columns, their grid, and the parts that divide the rows.

    A partition is a tree whose leaves say which part a row is in. All leaves that are done make one
    more part, the last. `merged` says for each column's bins which bin their rows count for.
    """

    columns: Sequence[Column]
    grid: Grid
    partition: Node = EVERYBODY
    merged: Sequence[IntArray] | None = None

    @cached_property
    def n_open(self) -> int:
        """The number of parts that are asked for."""
        return 1 + max(self._leaves)

    @property
    def n_parts(self) -> int:
        """The number of all parts, with that of the leaves that are done, if there are any."""
        return self.n_open + (DONE in self._leaves)

    def parts(self, contexts: FloatArray) -> IntArray:  # (n_rows,)
        """The part that each row is in."""
        numbers = np.array([self.n_open if leaf == DONE else leaf for leaf in self._leaves])
        return numbers[leaf_positions(self.partition, tuple(self.columns), contexts)]

    def bins(self, contexts: FloatArray) -> list[Bins]:  # of each column, (n_rows,)
        """The bin that each row is in, by column."""
        found: list[Bins] = []
        cut = zip(self.columns, self.grid.cuts, self.grid.is_level, self.grid.n_bins, strict=True)
        for column, cuts, is_level, n_bins in cut:
            if n_bins == 1:
                found.append(np.zeros(len(contexts), np.uint8))
                continue
            values = column.values(contexts)
            places = values if is_level else np.searchsorted(cuts, values)
            small = np.uint8 if n_bins <= MOST_BINS else np.uint16
            found.append(places.astype(small))
        if self.merged is None:
            return found
        return [onto.astype(own.dtype)[own] for onto, own in zip(self.merged, found, strict=True)]

    @cached_property
    def _leaves(self) -> list[int]:
        return [node.action for node in nodes_of(self.partition) if isinstance(node, Leaf)]


def cell_sums(
    parts: Iterable[ScoredRows], binning: Binning
) -> FloatArray:  # (n_parts, n_cells, n_numbers)
    """The sums over all these rows, for each part; rows without any score are left out.

    If every row has every score, the rows with each score are not counted.
    """
    return reduce(_added, totals_of(parts, partial(_sums_in, binning)))


def _sums_in(binning: Binning, parts: Iterable[ScoredRows]) -> FloatArray:
    return reduce(_added, (_sums_of(rows, binning) for rows in parts))


def _added(total: FloatArray, found: FloatArray) -> FloatArray:
    if total.shape[-1] < found.shape[-1]:
        total, found = found, total
    total += with_scored_weight(found, total.shape[-1])
    return total


def with_scored_weight(sums: FloatArray, n_numbers: int) -> FloatArray:  # (…, n_numbers)
    """The sums, also with the weight of rows that have each score, which may be all of them."""
    n_lacking = n_numbers - sums.shape[-1]  # as many as actions, or none
    if not n_lacking:
        return sums
    known = np.repeat(sums[..., 1:2], n_lacking, axis=-1)  # the weight of every row
    return np.concatenate([sums, known], axis=-1)


def _sums_of(rows: ScoredRows, binning: Binning) -> FloatArray:  # (n_parts, n_cells, n_numbers)
    usable, scores = rows.usable, rows.scores
    complete = bool(np.isfinite(scores.sum(axis=1, where=usable[:, None])).all())
    n_numbers = 2 + scores.shape[1] * (1 if complete else 2)
    sums = np.zeros((binning.n_parts, binning.grid.n_cells, n_numbers))
    n_threads = max(1, min(os.cpu_count() or 1, int(usable.sum()) // ROWS_PER_THREAD))
    with ThreadPoolExecutor(n_threads) as threads:
        for start in range(0, len(usable), ROWS_BINNED_AT_ONCE):
            own = start + np.flatnonzero(usable[start : start + ROWS_BINNED_AT_ONCE])
            if len(own):
                # What each row adds to its cell, in the order of `fedopl.policies.trees.search`.
                ones, known = np.ones((len(own), 1)), np.isfinite(scores[own])
                weight = ones if rows.weights is None else rows.weights[own, None]
                parts = [ones, weight, np.where(known, scores[own], 0.0) * weight]
                numbers = np.hstack(parts if complete else [*parts, known * weight])
                whole = len(own) == len(rows.contexts[start : start + ROWS_BINNED_AT_ONCE])
                contexts = rows.contexts[start : start + len(own)] if whole else rows.contexts[own]
                _add_block(sums, contexts, numbers, binning, threads)
    return sums


def _add_block(
    sums: FloatArray,
    contexts: FloatArray,
    numbers: FloatArray,
    binning: Binning,
    threads: ThreadPoolExecutor,
) -> None:
    grid, bins = binning.grid, binning.bins(contexts)
    parts = binning.parts(contexts).astype(np.int32)
    ones, ends = np.ones(len(contexts)), np.arange(len(contexts) + 1, dtype=np.int32)

    def add(columns: tuple[int, int]) -> None:
        from scipy.sparse import csc_array  # here, because it is slow to import

        first, second = columns
        table = grid.tables[columns]
        size = table.stop - table.start
        cell = bins[first].astype(np.int32)
        if first != second:
            cell *= grid.n_bins[second]
            cell += bins[second]
        if len(sums) > 1:
            cell += parts * size
        placed = csc_array((ones, cell, ends), shape=(len(sums) * size, len(contexts)))
        sums[:, table] += (placed @ numbers).reshape(len(sums), size, -1)

    list(threads.map(add, grid.tables))


@dataclass(frozen=True, eq=False)
class NearSums:
    """Sums over the rows that matter for a threshold, by question and narrow bin."""

    gains: FloatArray  # (n_questions, NEAR_BINS): Σ w·(Γ(yes) − Γ(no))
    counts: IntArray  # (n_questions, NEAR_BINS): these rows


def near_sums(
    parts: Iterable[ScoredRows], look: SecondLook, binning: Binning, known: BoolArray
) -> NearSums:
    """The sums over all these rows.

    Two kinds of rows do not count. For some, both answers lead to the same decision. Some lack
    the score of a `known` action.
    """
    shape = (len(look.questions), NEAR_BINS)
    gains, counts = np.zeros(shape), np.zeros(shape, np.int64)
    for rows in parts:
        own = rows.usable & np.isfinite(rows.scores[:, known]).all(axis=1)
        contexts, scores = rows.contexts[own], rows.scores[own]
        weights = np.ones(len(scores)) if rows.weights is None else rows.weights[own]
        for place in look.moving:
            here = np.flatnonzero(look.comes_to(place, binning.columns, contexts))
            branch = look.questions[place][0]
            differs, difference = _difference(branch, binning, contexts[here], scores[here])
            decides = differs & np.isfinite(difference)
            here, difference = here[decides], difference[decides]
            values = binning.columns[branch.column].values(contexts[here])
            near = np.searchsorted(look.near[place], values)
            gains[place] += np.bincount(near, weights[here] * difference, minlength=NEAR_BINS)
            counts[place] += np.bincount(near, minlength=NEAR_BINS)
    return NearSums(gains, counts)


def _difference(
    branch: Branch, binning: Binning, contexts: FloatArray, scores: FloatArray
) -> tuple[BoolArray, FloatArray]:
    """Whether both sides decide differently in each row, and Γ(yes) − Γ(no)."""
    columns, rows = tuple(binning.columns), np.arange(len(contexts))
    yes, no = (
        np.array([leaf.action for leaf in leaves_of(side)])[leaf_positions(side, columns, contexts)]
        for side in (branch.yes, branch.no)
    )
    return yes != no, scores[rows, yes] - scores[rows, no]


# A propensity below one in this many counts as one in this many.
LARGEST_INVERSE = 1024.0


def doubted_rows(
    chunks: Callable[[], Iterable[ScoredChunk]],
    propensities: Predict,
    shares: FloatArray,
    obeyed: ObeyedScores,
    without: int | None = None,
) -> Iterable[ScoredRows]:
    """Training rows with doubts in place of scores, and their squared weights.

    `shares` (n_actions,) of rows that took each action replace propensities that are not known.
    Rows of a fold are left out if it is given.
    """

    def in_doubt() -> Iterable[ScoredChunk]:
        return mapped(partial(_doubted, propensities, shares), chunks())

    return mapped(_with_squared_weights, obeyed.to_sum(in_doubt, without))


def _doubted(propensities: Predict, shares: FloatArray, chunk: ScoredChunk) -> ScoredChunk:
    chances = propensities(chunk)
    doubts = inverse_chances(np.where(np.isnan(chances), shares, chances))
    return chunk.with_scores(np.where(np.isfinite(chunk.scores), doubts, np.nan))


def _with_squared_weights(rows: ScoredRows) -> ScoredRows:
    return rows if rows.weights is None else replace(rows, weights=rows.weights**2)


def inverse_chances(chances: FloatArray) -> FloatArray:  # shaped as chances
    """1/e, of propensities that are not too small."""
    return 1 / np.clip(chances, 1 / LARGEST_INVERSE, 1.0)
