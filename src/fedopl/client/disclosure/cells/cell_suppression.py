"""Cell suppression: releases sums over a grid's cells so that none discloses a few rows.

A grid has a one-way table for each column and a two-way table for each pair. There are three steps:

1. Bins are merged until each holds enough rows, and further until few cells are small. A column is
   merged in the same way in all its tables. Otherwise the difference of a bin and a part of it
   would be disclosed. If two columns nearly repeat each other, bins of the second are merged until
   no cut is small.
2. Small cells of two-way tables are suppressed. Further cells are suppressed so that margins cannot
   be differenced (`secondary_suppression`).
3. Suppressed sums are spread over the suppressed cells of their table, so that totals stay. How far
   that can move the value of any tree is released, too (`possible_loss`).

The parts are the nodes of one level of a tree. With several parts, all of this holds in each of
them. Together they make up a whole that was released before. Bins merged there stay merged, and
cells suppressed there stay suppressed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.disclosure.cells.secondary_suppression import (
    are_few,
    has_small_cut,
    suppressed_cells,
)
from fedopl.client.disclosure.limits import RefusedError
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.trees.grid import Grid
from fedopl.policies.trees.search import FIRST_ACTION, ROWS, largest_error

# A column's bins are merged until on average at most this share of rows is in small cells.
MOST_SUPPRESSED = 0.1

Runs = IntArray  # (n_runs + 1,)  where each run of merged bins starts, and where the last one ends
Pair = tuple[int, int]  # of columns


@dataclass(frozen=True, eq=False)
class Suppression:
    """The merged bins of each column, and the suppressed cells of each pair of columns."""

    runs: tuple[Runs, ...]
    cells: dict[Pair, BoolArray]  # by run of both columns

    def run_of(self, column: int) -> IntArray:  # (n_bins,)
        """The run that each bin of a column is in."""
        lengths = np.diff(self.runs[column])
        return np.repeat(np.arange(len(lengths)), lengths)


def suppress_cells(
    sums: FloatArray, grid: Grid, needed: int, counts: FloatArray | None = None
) -> FloatArray:  # shaped as sums
    """The sums (n_parts, n_cells, n_numbers), changed so that none discloses a few rows.

    Some numbers may rest on only some of the rows. Then `counts` (n_parts, n_cells, n_kinds) has
    the number of these rows for each kind of number.
    """
    rows = sums[..., [ROWS]] if counts is None else counts
    suppression = suppression_of(rows, grid, needed)
    released = np.empty_like(sums)
    for (first, second), place in grid.tables.items():
        across, down = suppression.runs[first], suppression.runs[second]
        if first == second:
            released[:, place] = _spread_evenly(merge(sums[:, place], across, 1), across, 1)
            continue
        shape = (len(sums), grid.n_bins[first], grid.n_bins[second], sums.shape[-1])
        merged = merge(merge(sums[:, place].reshape(shape), across, 1), down, 2)
        cells = suppression.cells[first, second]
        spread = np.stack([_spread_suppressed(part, cells) for part in merged])
        spread = _spread_evenly(_spread_evenly(spread, down, 2), across, 1)
        released[:, place] = spread.reshape(sums[:, place].shape)
    return released


def suppression_of(rows: FloatArray, grid: Grid, needed: int) -> Suppression:
    """What to merge and suppress of these rows (n_parts, n_cells, n_kinds); may refuse."""
    layers = np.moveaxis(rows, -1, 1).reshape(-1, grid.n_cells)
    if are_few(layers[:, grid.whole].sum(axis=1), needed).any():
        raise RefusedError(RefusalCode.SMALL_CELLS)
    # First the whole, because it was released before its parts were asked for.
    suppression = _suppression(rows.sum(axis=0).T, grid, needed)
    if len(rows) > 1:
        _check_parts(rows, grid, suppression.runs, needed)
        suppression = _suppression(layers, grid, needed, suppression)
    return suppression


def _check_parts(rows: FloatArray, grid: Grid, runs: Sequence[Runs], needed: int) -> None:
    """Refuse parts that divide a merged run of the whole so that a few rows are isolated."""
    for column in grid.asked:
        by_part = merge(rows[:, grid.tables[column, column]], runs[column], 1)
        if any(has_small_cut(kind, needed) for kind in np.moveaxis(by_part, -1, 0)):
            raise RefusedError(RefusalCode.SMALL_CELLS)


def _suppression(
    layers: FloatArray, grid: Grid, needed: int, whole: Suppression | None = None
) -> Suppression:
    """What to merge and suppress, so that no cut is small in any of the layers (…, n_cells)."""
    merging = _Merging(layers, grid, needed, whole)
    while full := merging.too_full():
        for column in full:
            merging.merge_more(column)
    for first, second in merging.pairs:
        while any(has_small_cut(layer, needed) for layer in merging.table((first, second))):
            merging.merge_more(second)
    cells = {}
    for pair in merging.pairs:
        before = _suppressed_before(whole, pair, merging.runs) if whole else None
        cells[pair] = suppressed_cells(merging.table(pair), needed, before)
    return Suppression(tuple(merging.runs), cells)


def _suppressed_before(whole: Suppression, pair: Pair, runs: Sequence[Runs]) -> BoolArray:
    """The cells of these runs that contain any cell suppressed in the whole."""
    cells = whole.cells[pair]
    for axis, column in enumerate(pair):
        starts = np.searchsorted(whole.runs[column], runs[column])
        cells = np.logical_or.reduceat(cells, starts[:-1], axis=axis)
    return cells


# --- merging bins ------------------------------------------------------------------------------


class _Merging:
    """The bins of every column, merged so far; `runs` only ever become fewer."""

    def __init__(
        self, layers: FloatArray, grid: Grid, needed: int, whole: Suppression | None
    ) -> None:
        self._layers, self._grid, self._needed = layers, grid, needed
        self._margins = [grid.line(layers.T, n).T for n in range(grid.n_columns)]
        self._least = [needed] * grid.n_columns  # rows in each run, by column
        start = whole.runs if whole else [np.arange(n_bins + 1) for n_bins in grid.n_bins]
        self.runs = [_coarser(*one) for one in zip(self._margins, start, self._least, strict=True)]
        self.pairs = [(first, second) for first, second in grid.tables if first != second]

    def table(self, pair: Pair) -> FloatArray:  # (n_layers, n_runs, n_runs of the second)
        """The number of rows by run of these two columns."""
        first, second = pair
        shape = (-1, self._grid.n_bins[first], self._grid.n_bins[second])
        cells = self._layers[:, self._grid.tables[pair]].reshape(shape)
        return merge(merge(cells, self.runs[first], 1), self.runs[second], 2)

    def merge_more(self, column: int) -> None:
        """Require twice as many rows in each run of a column, until there are fewer runs."""
        n_runs = len(self.runs[column])
        while len(self.runs[column]) == n_runs > 2:
            self._least[column] *= 2
            self.runs[column] = _coarser(
                self._margins[column], self.runs[column], self._least[column]
            )

    def too_full(self) -> list[int]:
        """Numeric columns with too many rows in small cells, whose bins can still be merged."""
        shares: list[list[float]] = [[] for _ in self._grid.n_bins]
        for pair in self.pairs:
            table = self.table(pair)
            rows = table.sum(axis=0)
            few = are_few(table, self._needed).any(axis=0)
            for column in pair:
                shares[column].append(float(rows[few].sum() / max(rows.sum(), 1.0)))
        return [
            column
            for column, own in enumerate(shares)
            if own and np.mean(own) > MOST_SUPPRESSED
            if len(self.runs[column]) > 2 and not self._grid.is_level[column]
        ]


def _coarser(margin: FloatArray, runs: Runs, least: int) -> Runs:
    """Merge runs of a margin (n_layers, n_bins) until each has no row or enough, in every layer."""
    if least >= margin.sum():
        return runs[[0, -1]]
    enough = np.minimum(least, margin.sum(axis=1))
    up_to = np.pad(np.cumsum(margin, axis=1), ((0, 0), (1, 0)))

    def is_fine(first: int, after: int) -> bool:
        held = up_to[:, after] - up_to[:, first]
        return bool(((held == 0) | (held >= enough)).all())

    starts = [0]
    for after in runs[1:].tolist():
        if is_fine(starts[-1], after):
            starts.append(after)
    end = int(runs[-1])
    while len(starts) > 1 and not is_fine(starts[-1], end):
        starts.pop()  # the rest at the end belongs to the run before
    return np.array(starts if starts[-1] == end else [*starts, end])


def merge(bins: FloatArray, runs: Runs, axis: int) -> FloatArray:
    """Sums over runs of bins."""
    merged: FloatArray = np.add.reduceat(bins, runs[:-1], axis=axis)
    return merged


# --- what is released instead ------------------------------------------------------------------


def _spread_suppressed(table: FloatArray, suppressed: BoolArray) -> FloatArray:  # shaped as table
    """The table with suppressed amounts spread over the suppressed cells of both margins.

    Half is spread along each margin, in proportion to the suppressed rows of both margins. So a
    wholly suppressed table is released as if its two columns were independent.
    """
    if not suppressed.any():
        return table
    amounts = np.where(suppressed[..., None], table, 0.0)
    across, down = amounts.sum(axis=1, keepdims=True), amounts.sum(axis=0, keepdims=True)
    likely = np.where(suppressed, across[..., ROWS] * down[..., ROWS], 0.0)
    by_row = _shares(likely, axis=1)[..., None] * across
    by_column = _shares(likely, axis=0)[..., None] * down
    return np.where(suppressed[..., None], (by_row + by_column) / 2, table)


def _shares(amounts: FloatArray, axis: int) -> FloatArray:
    total = amounts.sum(axis=axis, keepdims=True)
    shares: FloatArray = np.divide(amounts, total, where=total > 0, out=np.zeros_like(amounts))
    return shares


def _spread_evenly(merged: FloatArray, runs: Runs, axis: int) -> FloatArray:
    """The sums of each run, divided equally among its bins."""
    lengths = np.diff(runs)
    shape = [1] * merged.ndim
    shape[axis] = -1
    spread: FloatArray = np.repeat(merged / lengths.reshape(shape), lengths, axis=axis)
    return spread


def possible_loss(released: FloatArray, true: FloatArray, grid: Grid, depth: int, n: int) -> float:
    """How far suppression can move the value of any tree below a node, up to a power of two.

    The exact number would disclose something about the suppressed cells.
    """
    exact = largest_error(released, true, grid, depth, n)
    scale = float(np.abs(grid.line(true, 0)[:, FIRST_ACTION : FIRST_ACTION + n]).sum())
    # A smaller number is the rounding error in a difference of equal sums.
    return 0.0 if exact <= 1e-12 * scale else 2.0 ** math.ceil(math.log2(exact))
