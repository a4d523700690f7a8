"""Local steps of the CSOAA oracle: stochastic least squares on the scores (Algorithm 2).

A step takes rows from anywhere in the table. Rows on disk are written once, with their scores, to a
private file that is removed with the process, and steps read only the rows that they take.
"""

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import repeat
from operator import iadd
from pathlib import Path

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.decompositions import eigvalsh
from fedopl.base.files import writing_to
from fedopl.client.disk.disk_array import (
    DiskArray,
    DiskWriter,
    check_space,
    remove_abandoned,
    slices,
)
from fedopl.client.rows.chunks import ScoredChunk, ScoredRows
from fedopl.client.table.logged_data import LoggedData, folder_of
from fedopl.study.plans import TrainingPlan

# Rows standardised or gathered at a time: enough to outweigh the calls, and they fit in a cache.
ROWS_STEPPED_AT_ONCE = 8192
ABANDONED = ".examples-"  # begins the names of folders with copies of rows

# Features (n_rows, n_features + 1), scores and emphasis of some rows. An unknown score has no
# emphasis, a heavy row has more. None if all rows have the same.
Batch = tuple[FloatArray, FloatArray, FloatArray | None]


@dataclass(frozen=True, eq=False, kw_only=True)
class Examples:
    """Standardised rows in memory."""

    features: FloatArray  # (n_rows, n_features + 1)
    scores: FloatArray  # (n_rows, n_actions), zero where unknown
    known: BoolArray | None  # (n_rows, n_actions), None if all are
    weights: FloatArray | None  # (n_rows,), of mean one
    curvature: float  # the largest eigenvalue of the mean of φφᵀ
    trace: float  # of the same

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.features)

    @property
    def width(self) -> int:
        """How many numbers a row has, including the one for the intercept."""
        return int(self.features.shape[1])

    def gathered(self, picks: IntArray) -> Batch:
        """The features, scores and emphasis of these rows."""
        weights = None if self.weights is None else self.weights.take(picks)
        known = None if self.known is None else self.known.take(picks, axis=0)
        features, scores = self.features.take(picks, axis=0), self.scores.take(picks, axis=0)
        return features, scores, emphasis(weights, known)

    def blocks(self) -> Iterable[Batch]:
        """All rows at once."""
        return [self.gathered(np.arange(self.n_rows))]


def emphasis(weights: FloatArray | None, known: BoolArray | None) -> FloatArray | None:
    """How much the error of each row and action counts; None where all count alike."""
    if weights is None:
        return None if known is None else known.astype(np.float64)
    return weights[..., None] if known is None else known.astype(np.float64) * weights[..., None]


def examples(rows: ScoredRows, centre: FloatArray, scale: FloatArray) -> Examples:
    """Standardise the rows that have a score, and measure how steep the objective is here."""
    usable = np.flatnonzero(rows.usable)
    scores = rows.scores.take(usable, axis=0)
    known = np.isfinite(scores)
    complete = bool(known.all())
    if not complete:
        scores[~known] = 0.0
    weights = rows.weights
    if weights is not None:
        weights = weights[usable] / weights[usable].mean()
    features = np.ones((len(usable), rows.contexts.shape[1] + 1))
    gram = np.zeros((features.shape[1], features.shape[1]))
    # In blocks, so that no other array is as large as the features.
    for first in range(0, len(usable), ROWS_STEPPED_AT_ONCE):
        block = slice(first, first + ROWS_STEPPED_AT_ONCE)
        chosen = rows.contexts.take(usable[block], axis=0)
        chosen -= centre[:-1]
        own = features[block]
        np.divide(chosen, scale[:-1], out=own[:, :-1])
        gram += (own if weights is None else own * weights[block, None]).T @ own
    gram /= len(usable)
    return Examples(
        features=features,
        scores=scores,
        known=None if complete else known,
        weights=weights,
        curvature=float(eigvalsh(gram)[-1]),
        trace=float(np.trace(gram)),
    )


# --- rows on disk ---------------------------------------------------------------------------------


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
    with writing_to(folder):
        path = Path(tempfile.mkdtemp(prefix=ABANDONED, dir=folder)) / "rows"
    counts = []
    try:
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
    except BaseException:
        shutil.rmtree(path.parent, ignore_errors=True)
        raise


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


# A client's training rows, standardised as the whole federation agreed.
StandardisedRows = Examples | DiskExamples


# --- steps ----------------------------------------------------------------------------------------


def movable(
    blocks: list[IntArray] | None, n_features: int
) -> FloatArray | None:  # (n_actions, n_features + 1)
    """Which parameters steps may move: all (None), or each action's own columns."""
    if blocks is None:
        return None
    mask = np.zeros((len(blocks), n_features + 1))
    for action, own in enumerate(blocks):
        mask[action, own] = 1.0
    return mask


def improve(
    parameters: FloatArray,
    rows: StandardisedRows,
    plan: TrainingPlan,
    picks: IntArray | None,
    decay: float,
    mask: FloatArray | None = None,
) -> FloatArray:  # shaped as parameters
    """Take the plan's local steps of this round from these parameters.

    `picks`, (n_steps, n_batch_rows), are the rows that each step takes, None if it takes all. The
    step is a share of the largest stable step, 1/(curvature + trace/batch), so one rate suits
    features of any scale; it is `decay` times as long as at first. `mask` keeps parameters outside
    an action's block at zero.
    """
    batch = rows.n_rows if picks is None else picks.shape[1]
    step = plan.rate * decay / (rows.curvature + rows.trace / batch + plan.proximal)
    current, passed = parameters.copy(), -parameters
    for parts in _steps(rows, plan.local_steps, picks):
        passed += current
        move = reduce(iadd, (_pull(current, part) for part in parts))
        move *= step / batch
        if plan.proximal:
            move += step * plan.proximal * (current - parameters)
        if mask is not None:
            move *= mask
        current -= move
    if plan.average == "rounds":
        return current
    # A weighted mean of the steps, in which all batches of the round count the same. A batch moves
    # every step after it, but less and less: each step forgets a share of all before. Every step
    # except the last has this share as its weight, and the last has weight one. So later batches
    # make up for having fewer steps after them.
    forgotten = min(step * (rows.trace / rows.width + plan.proximal), 1.0)
    return (current + forgotten * passed) / (1 + forgotten * (plan.local_steps - 1))


def _pull(current: FloatArray, batch: Batch) -> FloatArray:  # shaped as parameters
    features, scores, weight = batch
    error = features.dot(current.T)
    error -= scores
    if weight is not None:
        error *= weight
    pull: FloatArray = error.T.dot(features)
    return pull


def _steps(
    rows: StandardisedRows, n_steps: int, picks: IntArray | None
) -> Iterator[Iterable[Batch]]:
    """The rows that each step sums over: one batch, or all; batches are gathered for many steps."""
    if picks is None:
        yield from repeat(rows.blocks(), n_steps)
        return
    at_once = max(1, ROWS_STEPPED_AT_ONCE // picks.shape[1])
    for first in range(0, n_steps, at_once):
        features, scores, weight = rows.gathered(picks[first : first + at_once])
        each = repeat(None, len(features)) if weight is None else weight
        for batch in zip(features, scores, each, strict=True):
            yield [batch]
