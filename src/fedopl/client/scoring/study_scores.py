"""The scores of a study: all chunks are scored, then refused or stored for the next process.

Scores of rows in memory are kept in the client's store. Scores of rows on disk are in a file beside
the rows.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disk.disk_array import DiskArray
from fedopl.client.disk.passes import Pass
from fedopl.client.disk.store import Arrays, Store
from fedopl.client.rows.chunks import Chunk, ScoredChunk
from fedopl.client.rows.study_rows import StudyRows
from fedopl.client.scoring.corrected_scores import (
    added_by_changes,
    changes_by,
    find_products,
    may_be_corrected,
)
from fedopl.client.scoring.fit_numbers import NOTHING_FITTED, FittedRows, fit_numbers, joined_rows
from fedopl.client.scoring.interactions import INTERACTION_TESTS, interaction_tests
from fedopl.client.scoring.scoring_pass import (
    JustScored,
    ScoreFile,
    Scorer,
    added_covariances,
    scored_chunks,
)
from fedopl.client.table.logged_data import LoggedData, folder_of
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.study.plans import EvaluationPlan


@dataclass(frozen=True, eq=False, kw_only=True)
class StudyScores:
    """The scores of all rows of a study, and what they rest on."""

    values: FloatArray | DiskArray  # (n_rows, n_actions)
    hidden: BoolArray  # (n_actions,)  counts as unscored: no row has a score, or only a few
    is_complete: BoolArray  # ()  whether all training rows have all scores
    models: NDArray[np.uint8]  # a hash of the outcome models that rows were scored with
    local: FloatArray  # the numbers of the client's local policy
    chances: FloatArray  # (n_actions, n_chance_bins)
    effective_rows: FloatArray  # (n_actions,)
    fit: FloatArray  # (n_actions, n_numbers)  whether models fit, in `FIT_NUMBERS`
    imbalance: FloatArray  # (2, n_actions, n_features + 1)
    interactions: FloatArray  # (n_actions, n_products, n_tests)  in `INTERACTION_TESTS`
    excess: FloatArray  # (n_rows, n_actions)  of noise; no rows where rows are on disk
    changes: FloatArray  # (n_rows, n_actions)  of their scores; no rows where nothing was found
    limited: IntArray  # (n_limited,)  rows whose weight is limited for learning, ascending
    unlimited: FloatArray  # (n_limited,)  the score of their logged action, for evaluation

    @property
    def adds_variance(self) -> bool:
        """Whether values vary by more than the rows that they are of show."""
        return bool(self.excess.any() or self.changes.any())

    def added_covariances(
        self, rows: slice, decided: IntArray, weights: FloatArray | None
    ) -> FloatArray:  # (n_policies, n_policies)
        """By how much more of these rows, for policies that decide so (n_rows, n_policies)."""
        added = np.zeros((decided.shape[1], decided.shape[1]))
        if (excess := self.excess[rows]).any():
            added += added_covariances(excess, decided, weights)
        if (changes := self.changes[rows]).any():
            added += added_by_changes(changes, decided, weights)
        return added

    def part(self, rows: slice) -> FloatArray:  # (n_rows, n_actions)
        """The scores of these rows, NaN where there is none."""
        values: FloatArray = self.values[rows]
        return np.where(self.hidden, np.nan, values) if np.count_nonzero(self.hidden) else values

    def of(self, chunks: Pass[Chunk]) -> Pass[ScoredChunk]:
        """All chunks of the study, in order, with their scores."""
        return chunks.by_rows(self._with_scores)

    def _with_scores(self, rows: slice, chunks: Iterable[Chunk]) -> Iterator[ScoredChunk]:
        start = rows.start or 0
        for chunk in chunks:  # one, or parts of it
            stop = start + chunk.data.n_rows
            yield chunk.with_scores(self.part(slice(start, stop)))
            start = stop

    def evaluated(self, chunks: Pass[Chunk], *, corrected: bool = True) -> Pass[ScoredChunk]:
        """The same, with scores as they value: weights are not limited, and models corrected."""
        return self.of(chunks).by_rows(partial(self._for_evaluation, corrected))

    def _for_evaluation(
        self, corrected: bool, rows: slice, chunks: Iterable[ScoredChunk]
    ) -> Iterator[ScoredChunk]:
        start = rows.start or 0
        for chunk in chunks:
            yield self.for_evaluation(chunk, start, corrected=corrected)
            start += chunk.data.n_rows

    def for_evaluation(
        self, chunk: ScoredChunk, start: int = 0, *, corrected: bool = True
    ) -> ScoredChunk:
        """The chunk that starts at this row, with scores as they value training rows."""
        first, last = np.searchsorted(self.limited, [start, start + chunk.data.n_rows])
        corrected = corrected and bool(self.changes.any())
        if first == last and not corrected:
            return chunk
        rows, values = self.limited[first:last] - start, chunk.scores.copy()
        values[rows, chunk.data.actions[rows]] = self.unlimited[first:last]
        if corrected:  # scores of held-out rows have changed already
            n_training = chunk.training.stop
            values[:n_training] += self.changes[start : start + n_training]
        return chunk.with_scores(values)


# What is stored beside the scores themselves.
STORED = tuple(field.name for field in fields(StudyScores) if field.name != "values")


def score_chunks(
    scorer: Scorer,
    rows: StudyRows,
    path: Path | None,
    plan: EvaluationPlan,
    models: NDArray[np.uint8],
) -> StudyScores:
    """Score all rows, in memory or into a file; an action has no score if only a few rows have it.

    Overlap and fit are computed only if the plan asks for a description.
    """
    file = ScoreFile(path, (rows.given.n_rows, rows.given.n_actions)) if path else None
    found = scored_chunks(scorer, rows, file, plan)
    hidden = found.n_known < max(rows.minimum_cell, 1)
    if hidden.all():
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    values: FloatArray | DiskArray
    sample = joined_rows(found.sample) if found.sample else None
    changes = np.empty((0, rows.given.n_actions))
    if file:
        values = file.finished()
    else:
        (just,) = found.in_memory
        values = just.chunk.scores
        if scorer.corrects and sample is not None:
            sample, changes = _corrected(scorer, just, hidden, sample)
        held_out = just.chunk.rows(RowSplit.EVALUATION)
        if changes[held_out].any():  # nothing is learned from them
            values = values.copy()
            values[held_out] += changes[held_out]
    fit, interactions = NOTHING_FITTED, np.empty((0, 0, len(INTERACTION_TESTS)))
    if plan.describe and sample is not None:
        fit, interactions = fit_numbers(sample), interaction_tests(sample)
    return StudyScores(
        values=values,
        hidden=hidden,
        is_complete=np.asarray(found.is_complete),
        models=models,
        local=np.empty(0),
        chances=found.chances,
        effective_rows=found.effective_rows,
        fit=fit.numbers,
        imbalance=fit.imbalance,
        interactions=interactions,
        excess=found.excess,
        changes=changes,
        limited=np.concatenate(found.limited),
        unlimited=np.concatenate(found.unlimited),
    )


def _corrected(
    scorer: Scorer, just: JustScored, hidden: BoolArray, sample: FittedRows
) -> tuple[FittedRows, FloatArray]:
    """The sample with what features do together in its means, and changes of valued scores."""
    without = scorer.masked | scorer.few_took | hidden
    found = find_products(sample, may_be_corrected(just.chunk, without))
    if found is None:
        return sample, np.empty((0, len(hidden)))
    changes = changes_by(found, just.chunk, just.nuisances, scorer.plan.clip)
    return replace(sample, means=sample.means + found.out_of_fold), changes


class ScoreArchive:
    """Stores a study's scores between messages, and between processes."""

    def __init__(self, store: Store, key: str, rows: LoggedData) -> None:
        self._store, self._key, self._rows = store, key, rows
        self._latest: StudyScores | None = None

    def get(self) -> StudyScores | None:
        """The scores that were stored last, None if there are none or they are damaged."""
        if self._latest is None:
            self._latest = self._stored()
        return self._latest

    def put(self, scores: StudyScores) -> None:
        """Store the scores; those in a file beside the rows are already there."""
        arrays: Arrays = {name: np.asarray(getattr(scores, name)) for name in STORED}
        if not isinstance(scores.values, DiskArray):
            arrays["values"] = scores.values
        self._store.put(self._key, arrays)
        self._latest = scores

    def path(self, models: NDArray[Any]) -> Path | None:
        """The file for scores by these models, beside rows on disk; None for rows in memory."""
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
