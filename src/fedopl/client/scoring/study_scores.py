"""The scores of a study: every chunk scored, refused or kept, and found again by the next process.

Scores of rows in memory are kept in the client's store; those of rows on disk in a file beside
the rows.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.small_cells import ScoreCounts
from fedopl.client.disk.disk_array import DiskArray, DiskWriter
from fedopl.client.disk.prefetch import prefetched
from fedopl.client.disk.store import Arrays, Store
from fedopl.client.rows.chunks import Chunk, ScoredChunk
from fedopl.client.scoring.cross_fit import NuisanceModels, Nuisances
from fedopl.client.scoring.scores import aipw_scores
from fedopl.client.scoring.support import Support, SupportSums
from fedopl.client.table.logged_data import LoggedData, folder_of
from fedopl.messages.refusal import RefusalCode

# What is stored beside the scores themselves.
STORED = ("hidden", "is_complete", "models", "local", "chances", "effective_rows")


@dataclass(frozen=True, eq=False, kw_only=True)
class Scorer:
    """How a study scores rows: AIPW by these models, perhaps clipped, without masked actions."""

    models: NuisanceModels
    clip: float | None
    masked: BoolArray  # (n_actions,)  actions without a score, as the study wants it

    def gives_scores_of(self, other: "Scorer") -> bool:
        """Whether the other would give the same scores."""
        return (
            self.models.outcomes is other.models.outcomes
            and self.models.propensities is other.models.propensities
            and self.clip == other.clip
            and np.array_equal(self.masked, other.masked)
        )

    def scored(self, chunks: Iterable[Chunk]) -> Iterator[ScoredChunk]:
        """The chunks with their scores."""
        return (chunk for chunk, _ in self.scored_with_nuisances(chunks))

    def scored_with_nuisances(
        self, chunks: Iterable[Chunk]
    ) -> Iterator[tuple[ScoredChunk, Nuisances]]:
        """The chunks with their scores, each beside the nuisances that they were made from."""
        return prefetched(self._score, chunks)

    def _score(self, chunk: Chunk) -> tuple[ScoredChunk, Nuisances]:
        nuisances = self.models.of(chunk)
        values = aipw_scores(chunk.data, nuisances, clip=self.clip).values
        if self.masked.any():
            values = np.where(self.masked, np.nan, values)
        return chunk.with_scores(values), nuisances


@dataclass(frozen=True, eq=False, kw_only=True)
class StudyScores:
    """The scores of all rows of a study, and what they rest on."""

    values: FloatArray | DiskArray  # (n_rows, n_actions)
    hidden: BoolArray  # (n_actions,)  whose scores are not used, as a few rows lack them
    is_complete: BoolArray  # ()  whether all training rows have all scores
    chances: FloatArray  # (n_actions, n_chance_bins)
    effective_rows: FloatArray  # (n_actions,)
    models: NDArray[np.uint8]  # a hash of the outcome models that rows were scored with
    local: FloatArray  # the numbers of the client's local policy

    def part(self, rows: slice) -> FloatArray:  # (n_rows, n_actions)
        """The scores of these rows, NaN where there is none."""
        values: FloatArray = self.values[rows]
        return np.where(self.hidden, np.nan, values) if self.hidden.any() else values

    def of(self, chunks: Iterable[Chunk]) -> Iterator[ScoredChunk]:
        """All chunks of the study, in order, with their scores."""
        start = 0
        for chunk in chunks:
            stop = start + chunk.data.n_rows
            yield chunk.with_scores(self.part(slice(start, stop)))
            start = stop

    @property
    def support(self) -> Support:
        """How well each action is supported by the training rows."""
        return Support(self.chances, self.effective_rows)


def score_chunks(
    scorer: Scorer, chunks: Iterable[Chunk], needed: int, path: Path | None, *, described: bool
) -> StudyScores:
    """Score all rows, in memory or into a file; refused where sums would disclose a few rows.

    What supports them is counted only where it will be `described`.
    """
    n_actions = len(scorer.masked)
    known, support = ScoreCounts(n_actions), SupportSums(n_actions)
    values = _Values(path, n_actions)
    for chunk, nuisances in scorer.scored_with_nuisances(chunks):
        training = chunk.training
        known.add(chunk.scores[training])
        if described:
            support.add(chunk.data, nuisances.propensities, training)
        values.append(chunk.scores)
    hidden = known.to_suppress(needed)
    if not np.diagonal(known.both)[~hidden].any():
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    return StudyScores(
        values=values.finished(),
        hidden=hidden,
        is_complete=np.asarray(known.are_complete),
        models=np.empty(0, np.uint8),
        local=np.empty(0),
        **vars(support.support()),
    )


class _Values:
    """An array that grows by rows, in a file or in memory."""

    def __init__(self, path: Path | None, n_actions: int) -> None:
        self._path, self._pieces = path, [np.empty((0, n_actions))]
        self._writer = None
        if path is not None:
            self._writer = DiskWriter(path.with_suffix(".part"), (n_actions,), np.float64)

    def append(self, values: FloatArray) -> None:
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


class ScoreArchive:
    """Where a study's scores are kept between messages, and between processes."""

    def __init__(self, store: Store, key: str, rows: LoggedData) -> None:
        self._store, self._key, self._rows = store, key, rows
        self._latest: StudyScores | None = None

    def get(self) -> StudyScores | None:
        """The scores that were kept last, if any; what was stored damaged counts as none."""
        if self._latest is None:
            self._latest = self._stored()
        return self._latest

    def put(self, scores: StudyScores) -> None:
        """Keep the scores; those in a file beside the rows are there already."""
        arrays: Arrays = {name: np.asarray(getattr(scores, name)) for name in STORED}
        if not isinstance(scores.values, DiskArray):
            arrays["values"] = scores.values
        self._store.put(self._key, arrays)
        self._latest = scores

    def path(self, models: NDArray[Any]) -> Path | None:
        """The file for scores by these models of rows on disk, beside these; else None."""
        if not self._rows.is_on_disk:
            return None
        name = hashlib.sha256(f"{self._key} {models.tobytes().hex()}".encode()).hexdigest()[:32]
        return folder_of(self._rows) / f"scores-{name}.bin"

    def _stored(self) -> StudyScores | None:
        kept = self._store.get(self._key)
        if kept is None or not set(STORED) <= set(kept):
            return None
        shape = (self._rows.n_rows, self._rows.n_actions)
        values: FloatArray | DiskArray | None = kept.get("values")
        path = self.path(kept["models"])
        if path is not None and path.is_file():
            values = DiskArray(path, shape, np.dtype(np.float64))
        if values is None or values.shape != shape:
            return None
        return StudyScores(values=values, **{name: kept[name] for name in STORED})
