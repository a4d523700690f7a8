"""The scores of a study: all chunks are scored, then refused or stored for the next process.

Scores of rows in memory are kept in the client's store. Scores of rows on disk are in a file beside
the rows.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
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
from fedopl.client.scoring.corrected_scores import (
    added_by_changes,
    changes_by,
    may_be_corrected,
)
from fedopl.client.scoring.cross_fit import NuisanceModels, Nuisances
from fedopl.client.scoring.fit_numbers import NOTHING_FITTED, FitSample, fit_numbers
from fedopl.client.scoring.interactions import INTERACTION_TESTS, interaction_tests
from fedopl.client.scoring.net_scores import costs_in
from fedopl.client.scoring.noise_excess import NoiseExcess, added_covariances
from fedopl.client.scoring.scores import aipw_scores
from fedopl.client.scoring.step_products import find_products
from fedopl.client.table.logged_data import LoggedData, folder_of
from fedopl.messages.refusal import RefusalCode
from fedopl.study.plans import EvaluationPlan

# What is stored beside the scores themselves.
STORED = (
    "hidden",
    "is_complete",
    "models",
    "local",
    "chances",
    "effective_rows",
    "fit",
    "imbalance",
    "interactions",
    "excess",
    "changes",
    "limited",
    "unlimited",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Scorer:
    """How a study scores rows: AIPW by these models, perhaps clipped, without masked actions.

    Two rules are kept apart. Held-out rows value policies, so their scores are unbiased unless the
    study clips them. Training rows are learned from: there a propensity below the floor counts as
    the floor, since the noise of a few large weights does more harm than a little bias.

    Actions that only a few took are scored by their model alone: who knows the model could subtract
    it from sums of scores, and would be left with those few.

    Where propensities are estimated, held-out rows in memory are scored with what features do
    together beyond outcome models, if training rows show it.
    """

    models: NuisanceModels
    plan: NuisancePlan
    masked: BoolArray  # (n_actions,)  actions without a score, as the study wants it
    few_took: BoolArray  # (n_actions,)
    costs: FloatArray | None = None  # (n_actions, n_features + 1)  in the outcome's unit
    corrects: bool = False  # whether values depend on models of who got what

    def scored(self, chunks: Iterable[Chunk]) -> Iterator["JustScored"]:
        """The chunks with their scores, each beside the nuisances that they were made from."""
        return prefetched(self._score, chunks)

    def _score(self, chunk: Chunk) -> "JustScored":
        nuisances = self.models.of(chunk)
        values = aipw_scores(chunk.data, nuisances, clip=self.plan.clip).values
        took_few = np.flatnonzero(self.few_took[chunk.data.actions])
        if len(took_few):
            values = values.copy()
            places = took_few, chunk.data.actions[took_few]
            values[places] = nuisances.outcome_means[places]
        if self.masked.any():
            values = np.where(self.masked, np.nan, values)
        limited = self._limited(chunk, nuisances.propensities)
        places = limited, chunk.data.actions[limited]
        unlimited = values[places]
        if len(limited):
            values, means = values.copy(), nuisances.outcome_means[places]
            values[places] = means + (chunk.data.rewards[limited] - means) / self.learning_floor
        if self.costs is not None:
            costs = costs_in(chunk.data.contexts, self.costs)
            values, unlimited = values - costs, unlimited - costs[places]
        return JustScored(chunk.with_scores(values), nuisances, limited, unlimited)

    @property
    def learning_floor(self) -> float:
        """The propensity below which none counts in scores to learn from."""
        return self.plan.learning_floor(len(self.masked))

    def _limited(self, chunk: Chunk, propensities: FloatArray) -> IntArray:  # (n_limited,)
        """The training rows that took what they were unlikely to get, and have a score for it."""
        if self.learning_floor <= (self.plan.clip or 0.0):
            return np.empty(0, np.int64)  # they are clipped for either purpose
        actions = chunk.data.actions[chunk.training]
        logged = propensities[np.arange(len(actions)), actions]
        unlikely = (logged > 0) & (logged < self.learning_floor)
        return np.flatnonzero(unlikely & ~(self.few_took | self.masked)[actions])


class JustScored(NamedTuple):
    """A chunk with its scores, and how those that are learned from differ from others."""

    chunk: ScoredChunk
    nuisances: Nuisances
    limited: IntArray  # (n_limited,)  training rows whose weight is limited where it is learned
    unlimited: FloatArray  # (n_limited,)  the score of what they took, for evaluation


@dataclass(frozen=True, eq=False, kw_only=True)
class StudyScores:
    """The scores of all rows of a study, and what they rest on."""

    values: FloatArray | DiskArray  # (n_rows, n_actions)
    hidden: BoolArray  # (n_actions,)  counts as unscored: no row has a score, or a few lack it
    is_complete: BoolArray  # ()  whether all training rows have all scores
    chances: FloatArray  # (n_actions, n_chance_bins)
    effective_rows: FloatArray  # (n_actions,)
    fit: FloatArray  # (n_actions, n_numbers)  whether models fit, in `FIT_NUMBERS`
    imbalance: FloatArray  # (2, n_actions, n_features + 1)
    interactions: FloatArray  # (n_actions, n_products, n_tests)  in `INTERACTION_TESTS`
    excess: FloatArray  # (n_valued, n_actions)  of noise; no rows where rows are on disk
    changes: FloatArray  # (n_held_out, n_actions)  of their scores; no rows where nothing was found
    limited: IntArray  # (n_limited,)  rows whose weight is limited where it is learned, ascending
    unlimited: FloatArray  # (n_limited,)  the score of what they took, for evaluation
    models: NDArray[np.uint8]  # a hash of the outcome models that rows were scored with
    local: FloatArray  # the numbers of the client's local policy

    @property
    def adds_variance(self) -> bool:
        """Whether values vary by more than the rows that they are of show."""
        return bool(self.excess.any() or self.changes.any())

    def added_covariances(
        self, decided: IntArray, weights: FloatArray | None
    ) -> FloatArray:  # (n_policies, n_policies)
        """By how much more, for policies that decide so (n_rows, n_policies)."""
        added = np.zeros((decided.shape[1], decided.shape[1]))
        if self.excess.any():
            added += added_covariances(self.excess, decided, weights)
        if self.changes.any():
            added += added_by_changes(self.changes, decided, weights)
        return added

    def part(self, rows: slice) -> FloatArray:  # (n_rows, n_actions)
        """The scores of these rows, NaN where there is none."""
        values: FloatArray = self.values[rows]
        return np.where(self.hidden, np.nan, values) if self.hidden.any() else values

    def of(self, chunks: Pass[Chunk]) -> Pass[ScoredChunk]:
        """All chunks of the study, in order, with their scores."""
        return chunks.by_rows(self._with_scores)

    def _with_scores(self, rows: slice, chunks: Iterable[Chunk]) -> Iterator[ScoredChunk]:
        start = rows.start or 0
        for chunk in chunks:  # one, or parts of it
            stop = start + chunk.data.n_rows
            yield chunk.with_scores(self.part(slice(start, stop)))
            start = stop

    def evaluated(self, chunks: Pass[Chunk]) -> Pass[ScoredChunk]:
        """The same, with scores whose weights nobody limited."""
        return self.of(chunks).by_rows(self._for_evaluation)

    def _for_evaluation(self, rows: slice, chunks: Iterable[ScoredChunk]) -> Iterator[ScoredChunk]:
        start = rows.start or 0
        for chunk in chunks:
            yield self.for_evaluation(chunk, start)
            start += chunk.data.n_rows

    def for_evaluation(self, chunk: ScoredChunk, start: int = 0) -> ScoredChunk:
        """The chunk that starts at this row, with scores whose weights are not limited."""
        first, last = np.searchsorted(self.limited, [start, start + chunk.data.n_rows])
        if first == last:
            return chunk
        rows, values = self.limited[first:last] - start, chunk.scores.copy()
        values[rows, chunk.data.actions[rows]] = self.unlimited[first:last]
        return chunk.with_scores(values)


def score_chunks(
    scorer: Scorer, rows: StudyRows, needed: int, path: Path | None, plan: EvaluationPlan
) -> StudyScores:
    """Score all rows, in memory or into a file; refused if sums would disclose a few rows.

    Overlap and fit are computed only if the plan asks for a description.
    """
    n_actions = len(scorer.masked)
    corrects = scorer.corrects and plan.share > 0 and path is None
    known, support, sample = ScoreCounts(n_actions), _Support(n_actions), FitSample()
    valued = RowSplit.TRAINING if plan.is_cross_fitted else RowSplit.EVALUATION
    excess = NoiseExcess(n_actions, scorer.plan.clip, valued)
    values: Any = None  # of rows in memory, which are one chunk
    writer = path and DiskWriter(path.with_suffix(".part"), (n_actions,), np.float64)
    limited, unlimited = [np.empty(0, np.int64)], [np.empty(0)]
    start = 0
    for just in scorer.scored(chunks):
        chunk, nuisances = just.chunk, just.nuisances
        values = chunk.scores
        known.add(values[chunk.training])
        if plan.describe:
            support.add(chunk.data, nuisances.propensities, chunk.training)
        if plan.describe or corrects:
            sample.add(chunk, nuisances)
        if writer:
            writer.append(values)
        else:  # rows that fill a disk show their variance themselves
            excess.add(chunk, nuisances)
        # Few, as rows rarely take what they are unlikely to get.
        limited.append(start + just.limited)
        unlimited.append(just.unlimited)
        start += chunk.data.n_rows
    hidden = known.to_suppress(needed) | (np.diagonal(known.both) == 0)
    if hidden.all():
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    if path and writer:
        written = writer.finished()
        # Renamed when complete: whoever finds the file finds all scores.
        written.path.replace(path)
        values = DiskArray(path, written.shape, written.stored)
    changes = np.empty((0, n_actions))
    rows = sample.rows() if plan.describe or corrects else None
    if corrects and rows is not None:
        without = scorer.masked | scorer.few_took | hidden
        found = find_products(rows, may_be_corrected(just.chunk, without, needed))
        if found is not None:
            rows = replace(rows, means=rows.means + found.out_of_fold)
            changes = changes_by(found.products, just.chunk, just.nuisances, scorer.plan.clip)
            values = _changed(values, just.chunk, changes)
    fit, interactions = NOTHING_FITTED, np.empty((0, 0, len(INTERACTION_TESTS)))
    if plan.describe and rows is not None:
        fit, interactions = fit_numbers(rows), interaction_tests(rows)
    return StudyScores(
        values=file.finished() if file else found.values[0],
        hidden=hidden,
        is_complete=np.asarray(known.are_complete),
        models=np.empty(0, np.uint8),
        local=np.empty(0),
        chances=found.support.chances,
        effective_rows=found.support.effective_rows(),
        fit=fit.numbers,
        imbalance=fit.imbalance,
        interactions=interactions,
        excess=np.empty((0, n_actions)) if writer else excess.found(),
        changes=changes,
        limited=np.concatenate(limited),
        unlimited=np.concatenate(unlimited),
    )


def _changed(values: FloatArray, chunk: Chunk, changes: FloatArray) -> FloatArray:
    """The scores of all rows, those of held-out rows changed."""
    changed, rows = values.copy(), chunk.rows(RowSplit.EVALUATION)
    changed[rows] += changes
    return changed


class _Support:
    """How likely each action was in the rows, and how many took it, chunk by chunk."""

    def __init__(self, n_actions: int) -> None:
        self.chances = np.zeros((n_actions, len(CHANCE_CUTS) + 1))
        self._inverse, self._squares = np.zeros(n_actions), np.zeros(n_actions)

    def add(self, data: LoggedData, propensities: FloatArray, rows: slice) -> None:
        """Count and weigh these rows; one whose propensity is not known does not count."""
        known, actions = propensities[rows], data.actions[rows]
        for block in slices(len(known), max(1, NUMBERS_PER_BLOCK // data.n_actions)):
            columns = np.ascontiguousarray(known[block].T)
            # NaN is not above −∞ either, so an unknown propensity is in no bin.
            above = (columns >= _FROM).sum(axis=2)  # (n_bins, n_actions)
            above[:-1] -= above[1:]
            self.chances += above.T
        logged = known[np.arange(len(known)), actions]
        weights = data.weights_of(rows)
        inverse = np.divide(weights, logged, out=np.zeros_like(logged), where=logged > 0)
        self._inverse += np.bincount(actions, inverse, data.n_actions)
        self._squares += np.bincount(actions, inverse**2, data.n_actions)

    def effective_rows(self) -> FloatArray:  # (n_actions,)
        """(Σw)²/Σw² with w the inverse propensities of those who took each action."""
        return np.asarray(self._inverse**2 / np.where(self._squares > 0, self._squares, 1.0))


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
