"""Training rows on disk for local steps: one file, from which batches are gathered.

A step takes rows from anywhere in the table. All rows are written once, with their scores, to a
private file that is removed with the process. Steps read only the rows that they take.
"""

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.decompositions import eigvalsh
from fedopl.base.errors import StorageError
from fedopl.client.disk.disk_array import (
    DiskArray,
    DiskWriter,
    check_space,
    remove_abandoned,
    slices,
)
from fedopl.client.local.local_steps import ROWS_STEPPED_AT_ONCE, Batch, emphasis
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.client.table.logged_data import LoggedData, folder_of

ABANDONED = ".examples-"


class DiskExamples:
    """Rows in a file: contexts, scores (NaN where unknown) and, if rows have one, their weight.

    They have the numbers that they would have in memory, sorted by fold and action. So steps take
    the same rows. In the file they are in the order of the chunks.
    """

    def __init__(
        self,
        chunks: Callable[[], Iterable[ScoredChunk]],
        given: LoggedData,
        centre: FloatArray,
        scale: FloatArray,
    ) -> None:
        self._n_features, self._n_actions = given.n_features, given.n_actions
        self._centre, self._scale = centre[:-1], scale[:-1]
        self._file, counts = _written(chunks(), given)
        weakref.finalize(self, shutil.rmtree, self._file.path.parent, ignore_errors=True)
        self._places = _Places(counts)
        self._mean_weight = 1.0
        if self._file.shape[1] > self._n_features + self._n_actions:
            total = sum(float(part[:, -1].sum()) for part in self._parts())
            self._mean_weight = total / self.n_rows
        gram = np.zeros((self.width, self.width))
        for part in self._parts():
            features, _, weights = self._standardised(part)
            gram += (features if weights is None else features * weights[:, None]).T @ features
        gram /= self.n_rows
        self.curvature = float(eigvalsh(gram)[-1])
        self.trace = float(np.trace(gram))

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self._file)

    @property
    def width(self) -> int:
        """How many numbers a row has, including the one for the intercept."""
        return self._n_features + 1

    def gathered(self, picks: IntArray) -> Batch:
        """The features, scores and emphasis of these rows."""
        rows = self._file.rows_at(self._places.in_file(picks.ravel()))
        features, scores, weight = self._batch(rows)
        shaped = weight if weight is None else weight.reshape(*picks.shape, -1)
        return features.reshape(*picks.shape, -1), scores.reshape(*picks.shape, -1), shaped

    def blocks(self) -> "DiskExamples":
        """All rows, in blocks."""
        return self

    def __iter__(self) -> Iterator[Batch]:
        return map(self._batch, self._parts())

    def _parts(self) -> Iterator[FloatArray]:
        return (self._file[rows] for rows in slices(self.n_rows, ROWS_STEPPED_AT_ONCE))

    def _batch(self, rows: FloatArray) -> Batch:
        features, scores, weights = self._standardised(rows)
        known = np.isfinite(scores)
        if known.all():
            return features, scores, emphasis(weights, None)
        return features, np.where(known, scores, 0.0), emphasis(weights, known)

    def _standardised(self, rows: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        """Features, scores and weights of mean one, for rows as they are in the file."""
        p, both = self._n_features, self._n_features + self._n_actions
        features = np.ones((len(rows), p + 1))
        np.divide(rows[:, :p] - self._centre, self._scale, out=features[:, :-1])
        weights = rows[:, both] / self._mean_weight if rows.shape[1] > both else None
        return features, rows[:, p:both], weights


def _written(chunks: Iterable[ScoredChunk], given: LoggedData) -> tuple[DiskArray, IntArray]:
    """The file, and the number of its rows by chunk and by fold and action."""
    folder = folder_of(given)
    remove_abandoned(folder, ABANDONED)
    width = given.n_features + given.n_actions + (given.weights is not None)
    check_space(folder, 8 * width * given.n_rows, "a copy of the rows for local steps")
    try:
        path = Path(tempfile.mkdtemp(prefix=ABANDONED, dir=folder)) / "rows"
    except OSError as error:
        raise StorageError(f"{folder}: cannot be written: {error.strerror or error}") from None
    try:
        return _copied(chunks, path, given)
    except BaseException:
        shutil.rmtree(path.parent, ignore_errors=True)
        raise


def _copied(
    chunks: Iterable[ScoredChunk], path: Path, given: LoggedData
) -> tuple[DiskArray, IntArray]:
    width = given.n_features + given.n_actions + (given.weights is not None)
    counts = []
    with DiskWriter(path, (width,), np.float64) as writer:
        for chunk in chunks:
            rows = chunk.scored_rows()
            usable = np.flatnonzero(rows.usable)
            arrays = [rows.contexts, rows.scores]
            arrays += [] if rows.weights is None else [rows.weights[:, None]]
            writer.append(np.column_stack([array.take(usable, axis=0) for array in arrays]))
            n_cells = chunk.folds.n_folds * given.n_actions
            counts.append(np.bincount(chunk.fold_actions[usable], minlength=n_cells))
        return writer.finished(), np.array(counts)


class _Places:
    """Finds the place of rows in a file of chunks, by their numbers when sorted by cell."""

    def __init__(self, counts: IntArray) -> None:  # (n_chunks, n_cells)
        self._ends = counts.cumsum(axis=0)  # counts up to each chunk, by cell
        self._before = self._ends - counts
        in_order = counts.ravel().cumsum().reshape(counts.shape)
        self._starts = in_order - counts  # places in the file
        self._cells = self._ends[-1].cumsum()

    def in_file(self, numbers: IntArray) -> IntArray:  # (n_rows,)
        """The place of each of these rows."""
        cells = np.searchsorted(self._cells, numbers, side="right")
        found = np.empty_like(numbers)
        for cell in np.unique(cells):
            own = cells == cell
            rank = numbers[own] - (self._cells[cell] - self._ends[-1, cell])
            chunk = np.searchsorted(self._ends[:, cell], rank, side="right")
            found[own] = self._starts[chunk, cell] + rank - self._before[chunk, cell]
        return found
