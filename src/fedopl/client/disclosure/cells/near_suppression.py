"""Releases sums between narrow cuts that, with a grid's cells, do not disclose a few rows.

Rows that matter for a threshold are divided into pieces, by narrow bin and by the path that they
take from there. A piece lies in one bin of the grid, and each row is in one piece at most. The sums
over pieces and the cells of two columns give, for each row, the sum of its piece, the sum of each
column's bin, and the sum of its cell if that was not suppressed. Take a graph with a point for each
of these sums and an edge for the rows that share them. A sum or difference that leaves out most
rows rests on the rows in a cut. Bins are merged until each piece has enough rows and no cut is
small. Where that is not enough, bins are dropped.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.disclosure.cells.cell_suppression import Suppression, merge
from fedopl.client.disclosure.cells.secondary_suppression import are_few, has_small_cut
from fedopl.policies.trees.grid import Grid
from fedopl.policies.trees.second_look import NEAR_BINS, SecondLook


@dataclass(frozen=True, eq=False, kw_only=True)
class Beside:
    """What was released about the same rows before: the cells of a grid."""

    layers: FloatArray  # (n_layers, n_cells)  all rows, and those with each action's score
    grid: Grid
    suppression: Suppression
    needed: int

    def table(self, first: int, second: int) -> FloatArray:  # (n_layers, n_runs, n_runs)
        """The number of rows by run of two columns."""
        cells = np.moveaxis(self.grid.table(self.layers.T, first, second), -1, 0)
        runs = self.suppression.runs
        return merge(merge(cells, runs[first], 1), runs[second], 2)

    def suppressed(self, first: int, second: int) -> BoolArray:  # (n_runs, n_runs of the second)
        """The cells of two columns that were suppressed."""
        cells = self.suppression.cells[min(first, second), max(first, second)]
        return cells if first < second else cells.T


@dataclass(frozen=True, eq=False)
class _Run:
    """Narrow bins of a question that are released as one, with their pieces."""

    question: int
    bins: slice
    column: int
    run: int  # of the grid's merged bins
    rows: IntArray  # (n_ways,)

    @property
    def n_rows(self) -> int:
        """The rows of all pieces."""
        return int(self.rows.sum())


def release_gains(
    gains: FloatArray, counts: list[FloatArray], look: SecondLook, beside: Beside
) -> FloatArray:  # shaped as gains
    """The gains (n_questions, n_bins) of merged bins, divided equally; zeros where not released.

    `counts` has rows by question, narrow bin, path, and bin of each column.
    """
    pieces = Pieces(counts, look, beside)
    while columns := next(pieces.disclosing(), None):
        pieces.merge_more(columns)
    released = np.zeros_like(gains)
    for run in pieces.runs():
        # Nothing lies between two equal thresholds, so no gain may be placed there.
        wide = np.diff(look.near[run.question], prepend=-np.inf, append=np.inf)[run.bins] > 0
        whole = gains[run.question, run.bins].sum()
        released[run.question, run.bins] = np.where(wide, whole / wide.sum(), 0.0)
    return released


@dataclass(eq=False)
class Pieces:
    """The narrow bins of every question, merged so far."""

    counts: list[FloatArray]
    look: SecondLook
    beside: Beside
    least: dict[int, int] = field(default_factory=dict)  # rows in each run, by question

    def __post_init__(self) -> None:
        self.least = dict.fromkeys(self.look.moving, self.beside.needed)
        self._n_rows = int(self.counts[0].sum())

    def runs(self) -> list[_Run]:
        """The runs to release: enough rows in each, and in what is left of the grid's bins."""
        found = [run for question in self.least for run in self._runs_of(question)]
        margins = self.beside.layers
        for column in {run.column for run in found}:
            line = margins[:, self.beside.grid.tables[column, column]]
            whole = merge(line, self.beside.suppression.runs[column], 1)
            for place in range(whole.shape[1]):
                own = sorted(
                    (run for run in found if (run.column, run.run) == (column, place)),
                    key=lambda run: run.n_rows,
                )
                while (
                    own
                    and are_few(
                        whole[:, place] - sum(run.n_rows for run in own), self.beside.needed
                    ).any()
                ):
                    found.remove(own.pop(0))
        return found

    def _runs_of(self, question: int) -> Iterator[_Run]:
        column = self.look.questions[question][0].column
        rows = self.counts[column][question]  # (n_bins, n_ways, n_bins of the column)
        cut, run_of = self.look.n_below(question), self.beside.suppression.run_of(column)
        for start, end in ((0, cut), (cut, NEAR_BINS)):
            for bins in self._merged(rows[start:end].sum(axis=2), self.least[question]):
                own = slice(start + bins.start, start + bins.stop)
                by_bin = rows[own].sum(axis=(0, 1))
                ways = rows[own].sum(axis=(0, 2)).astype(np.int64)
                yield _Run(question, own, column, int(run_of[by_bin.argmax()]), ways)

    def _merged(self, rows: FloatArray, least: int) -> Iterator[slice]:
        """Bins (n_bins, n_ways) of one side, merged until each path has no rows or enough."""
        start, ends = 0, []
        for end in range(1, len(rows) + 1):
            held = rows[start:end].sum(axis=0)
            if held.sum() >= least and not are_few(held, self.beside.needed).any():
                ends.append(end)
                start = end
        if ends and rows[start:].any():  # the rest belongs to the run before
            left = [*ends]
            while left:
                after = left[-2] if len(left) > 1 else 0
                if not are_few(rows[after:].sum(axis=0), self.beside.needed).any():
                    break
                left.pop()
            ends = [*left[:-1], len(rows)] if left else []
        start = 0
        for end in ends:
            yield slice(start, end)
            start = end

    def merge_more(self, columns: tuple[int, int]) -> None:
        """Double the rows that runs of these columns need; drop questions that need too many."""
        for question in list(self.least):
            if self.look.questions[question][0].column in columns:
                self.least[question] *= 2
                if self.least[question] > self._n_rows:
                    del self.least[question]

    # --- beside the cells of two columns ---------------------------------------------------------

    def disclosing(self) -> Iterator[tuple[int, int]]:
        """Each pair of columns whose cells, with the pieces, disclose a few rows."""
        asked = {branch.column for branch, _ in self.look.questions}
        runs = self.runs()
        for first in sorted({run.column for run in runs}):
            for second in self.beside.grid.asked:
                if first == second:
                    continue
                graphs = self._both if second in asked else self._one
                if any(
                    has_small_cut(own, self.beside.needed) for own in graphs(runs, first, second)
                ):
                    yield first, second

    def _one(self, runs: list[_Run], first: int, second: int) -> Iterator[FloatArray]:
        """Pieces of the first column, and the rest of its bins, by the sum that rows share.

        In a suppressed cell that is the second column's bin, in any other the cell itself.
        """
        pieces, places = self._crossed(runs, first, second)
        suppressed = self.beside.suppressed(first, second)
        divided = np.unique(places)
        for layer in self.beside.table(first, second):
            left = layer.copy()
            np.subtract.at(left, places, pieces)
            numbers = np.concatenate([pieces, left])
            of = np.concatenate([places, np.arange(len(left))])
            hidden = np.where(suppressed[of], numbers, 0.0)
            told = np.where(suppressed[of], 0.0, numbers)
            by_cell = [np.where((of == place)[:, None], told, 0.0) for place in divided]
            yield np.hstack([hidden, *by_cell])

    def _both(self, runs: list[_Run], first: int, second: int) -> Iterator[FloatArray]:
        """Pieces of both columns, and all other rows, by cell; no piece has a suppressed cell."""
        shape = self.beside.suppressed(first, second).shape
        ones, across = self._crossed(runs, first, second)
        others, down = self._crossed(runs, second, first)
        numbers = np.zeros((len(ones) + len(others), *shape))
        numbers[np.arange(len(ones)), across] = ones
        numbers[len(ones) + np.arange(len(others)), :, down] = others
        flat = numbers.reshape(len(numbers), -1)
        touched = flat.any(axis=0)
        for layer in self.beside.table(first, second):
            left = layer.ravel() - flat.sum(axis=0)
            yield np.vstack([flat, left])[:, touched]

    def _crossed(
        self, runs: list[_Run], first: int, second: int
    ) -> tuple[FloatArray, IntArray]:  # (n_pieces, n_runs of the second), (n_pieces,)
        """Rows of each piece of a column by run of another column, and the piece's own run."""
        starts = self.beside.suppression.runs[second]
        found, places = [np.zeros((0, len(starts) - 1))], []
        for run in runs:
            if run.column == first:
                by_bin = self.counts[second][run.question, run.bins].sum(axis=0)
                by_run = merge(by_bin, starts, 1)[run.rows > 0]
                found.append(by_run)
                places += [run.run] * len(by_run)
        return np.concatenate(found), np.array(places, np.int64)
