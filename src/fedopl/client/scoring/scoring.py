"""Scores of rows that come some at a time, and what is kept of them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.small_cells import ScoreCounts
from fedopl.client.disk.disk_array import DiskArray, DiskWriter
from fedopl.client.disk.prefetch import prefetched
from fedopl.client.disk.store import Arrays
from fedopl.client.rows.chunks import Chunk
from fedopl.client.rows.fold_sums import predict
from fedopl.client.scoring.chances import Chances
from fedopl.client.scoring.cross_fit import Nuisances
from fedopl.client.scoring.scores import aipw_scores
from fedopl.client.scoring.support import Support, SupportSums
from fedopl.messages.refusal import RefusalCode
from fedopl.solvers.least_squares import LinearModels

# What is stored beside the scores themselves.
STORED = ("hidden", "is_complete", "models", "local", "chances", "effective_rows")


@dataclass(frozen=True, eq=False, kw_only=True)
class Scored:
    """The scores of all rows, and what they rest on."""

    values: FloatArray | DiskArray  # (n_rows, n_actions)
    hidden: BoolArray  # (n_actions,)  whose scores are not used, as a few rows lack them
    is_complete: BoolArray  # ()  whether all training rows have all scores
    chances: FloatArray  # (n_actions, n_chance_bins)
    effective_rows: FloatArray  # (n_actions,)
    models: NDArray[np.uint8]  # what they were scored with, hashed
    local: FloatArray  # the client's own policy, as numbers

    def part(self, rows: slice) -> FloatArray:  # (n_rows, n_actions)
        """The scores of these rows, NaN where there is none."""
        values: FloatArray = self.values[rows]
        return np.where(self.hidden, np.nan, values) if self.hidden.any() else values

    @property
    def support(self) -> Support:
        """How well each action is supported by the training rows."""
        return Support(self.chances, self.effective_rows)

    def arrays(self) -> Arrays:
        """To be stored; scores that are on disk are there already."""
        stored = {name: np.asarray(getattr(self, name)) for name in STORED}
        return stored if isinstance(self.values, DiskArray) else {**stored, "values": self.values}


@dataclass(frozen=True, eq=False, kw_only=True)
class Scoring:
    """How rows are scored: by outcome models, one for each part, and by how likely actions were."""

    models: LinearModels
    chances: Chances
    clip: float | None
    masked: BoolArray  # (n_actions,)  actions that nobody's scores are told of

    def agrees_with(self, other: "Scoring") -> bool:
        """Whether the other would give the same scores."""
        return (
            self.models is other.models
            and self.chances is other.chances
            and self.clip == other.clip
            and np.array_equal(self.masked, other.masked)
        )

    def scores(self, chunks: Callable[[], Iterable[Chunk]]) -> Iterator[Chunk]:
        """The chunks with their scores."""
        return (chunk.with_scores(values) for chunk, values, _ in self.each(chunks()))

    def each(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, FloatArray, FloatArray]]:
        """The chunks, their scores, and the propensities behind these."""
        return prefetched(self._one, chunks)

    def _one(self, chunk: Chunk) -> tuple[Chunk, FloatArray, FloatArray]:
        chances = self.chances.of(chunk.data, chunk.folds)
        nuisances = Nuisances(
            outcome_means=predict(chunk.data, chunk.folds, self.models),
            propensities=chances,
            folds=chunk.folds.of_row,
            supported=self.models.supported,
            outcome="linear",
            propensity=self.chances.chosen,
            notes=(),
        )
        values = aipw_scores(chunk.data, nuisances, clip=self.clip).values
        if self.masked.any():
            values = np.where(self.masked, np.nan, values)
        return chunk, values, chances

    def scored(
        self, chunks: Iterable[Chunk], needed: int, path: Path | None, *, described: bool
    ) -> Scored:
        """All scores, in memory or in a file; refused where they would tell of a few rows.

        What supports them is counted only where it will be `described`.
        """
        n_actions = len(self.masked)
        known, support = ScoreCounts(n_actions), SupportSums(n_actions)
        keeping = _Keeping(path, n_actions)
        for chunk, values, chances in self.each(chunks):
            training = chunk.training
            known.add(values[training])
            if described:
                support.add(chunk.data, chances, training)
            keeping.add(values)
        hidden = known.to_suppress(needed)
        if not np.diagonal(known.both)[~hidden].any():
            raise RefusedError(RefusalCode.NOTHING_TO_SAY)
        return Scored(
            values=keeping.finished(),
            hidden=hidden,
            is_complete=np.asarray(known.are_complete),
            models=np.empty(0, np.uint8),
            local=np.empty(0),
            **vars(support.support()),
        )


class _Keeping:
    """Scores that are added some at a time, to a file or to memory."""

    def __init__(self, path: Path | None, n_actions: int) -> None:
        self._path, self._pieces = path, [np.empty((0, n_actions))]
        self._writer = None
        if path is not None:
            self._writer = DiskWriter(path.with_suffix(".part"), (n_actions,), np.float64)

    def add(self, values: FloatArray) -> None:
        if self._writer is None:
            self._pieces.append(values)
        else:
            self._writer.append(values)

    def finished(self) -> FloatArray | DiskArray:
        if self._writer is None or self._path is None:
            pieces = self._pieces[1:]
            return pieces[0] if len(pieces) == 1 else np.concatenate(self._pieces)
        written = self._writer.finished()
        written.path.replace(self._path)
        return DiskArray(self._path, written.shape, written.stored)
