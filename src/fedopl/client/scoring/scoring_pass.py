"""One pass that scores rows: by chunk, into a file for rows on disk, and what scores rest on.

It also finds how much more values vary than the rows at hand show, where an action was unlikely.
The few rows that took an action against the odds carry most of the variance of its value, because
weights count squared. A sample may have none of them. Then its standard error is far too small, and
its value is wrong. Propensities say how much each row may vary, whether it took the action or not:
σ²·ê/max(ê, clip)², where σ² is the mean squared residual of the rows that took the action.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from operator import add, attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.decompositions import eigh
from fedopl.base.files import writing_to
from fedopl.client.disk.disk_array import DiskArray, slices
from fedopl.client.disk.passes import Pass
from fedopl.client.rows.chunks import Chunk, ScoredChunk
from fedopl.client.rows.study_rows import StudyRows
from fedopl.client.scoring.cross_fit import NuisanceModels, Nuisances
from fedopl.client.scoring.fit_numbers import FittedRows, sampled_rows
from fedopl.client.scoring.net_scores import costs_in
from fedopl.client.scoring.scores import aipw_scores
from fedopl.client.table.logged_data import LoggedData
from fedopl.messages.evaluation.description import CHANCE_CUTS
from fedopl.study.plans import EvaluationPlan, NuisancePlan

_FROM = np.array([-np.inf, *CHANCE_CUTS])[:, None, None]  # where each bin of chances begins
NUMBERS_PER_BLOCK = 1 << 16


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

    def scored(self, chunks: Pass[Chunk]) -> Pass[ScoredChunk]:
        """The chunks with their scores."""
        return chunks.mapped(self.score).mapped(attrgetter("chunk"))

    def score(self, chunk: Chunk) -> "JustScored":
        """The chunk with its scores, beside the nuisances that they were made from."""
        nuisances = self.models.of(chunk)
        values = aipw_scores(chunk.data, nuisances, clip=self.plan.clip).values
        if np.count_nonzero(self.few_took):
            took_few = np.flatnonzero(self.few_took[chunk.data.actions])
            values = values.copy()
            places = took_few, chunk.data.actions[took_few]
            values[places] = nuisances.outcome_means[places]
        if np.count_nonzero(self.masked):
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
        floor = self.learning_floor
        if floor <= (self.plan.clip or 0.0):
            return np.empty(0, np.int64)  # they are clipped for either purpose
        actions = chunk.data.actions[chunk.training]
        logged = propensities[np.arange(len(actions)), actions]
        (unlikely,) = ((logged > 0) & (logged < floor)).nonzero()
        if not len(unlikely):
            return unlikely
        return unlikely[~(self.few_took | self.masked)[actions[unlikely]]]


class JustScored(NamedTuple):
    """A chunk with its scores, and how those that are learned from differ from others."""

    chunk: ScoredChunk
    nuisances: Nuisances
    limited: IntArray  # (n_limited,)  training rows whose weight is limited where it is learned
    unlimited: FloatArray  # (n_limited,)  the score of what they took, for evaluation


@dataclass(frozen=True)
class ScoreFile:
    """A file of scores, to which chunks are written in any order, and by several processes."""

    path: Path
    shape: tuple[int, int]

    @property
    def _beside(self) -> Path:
        return self.path.with_suffix(".part")

    def prepare(self) -> None:
        """Make a file of that size, which only its owner can read."""
        with writing_to(self.path):
            descriptor = os.open(self._beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.truncate(8 * self.shape[0] * self.shape[1])

    def write(self, start: int, scores: FloatArray) -> None:
        """Write the scores of the rows from this one on; the same ones again change nothing."""
        with writing_to(self.path), self._beside.open("r+b") as file:
            file.seek(8 * start * self.shape[1])
            file.write(np.ascontiguousarray(scores, np.float64).reshape(-1).view(np.uint8).data)

    def finished(self) -> DiskArray:
        """The scores, flushed to the disk; renamed when complete: whoever finds them finds all."""
        with writing_to(self.path):
            with self._beside.open("r+b") as file:
                os.fsync(file.fileno())
            self._beside.replace(self.path)
        return DiskArray(self.path, self.shape, np.dtype(np.float64))


class ScoredPart(NamedTuple):
    """What scores of some chunks rest on; the scores themselves, where they are in memory."""

    n_rows: int  # to learn from
    n_known: IntArray  # (n_actions,)  how many of them have a score
    # Where overlap is described: how many had propensities in each bin of `CHANCE_CUTS`, and sums
    # of the inverse propensities of those who took each action, and of their squares.
    chances: FloatArray  # (n_actions, n_bins)
    inverse: FloatArray  # (n_actions,)
    squares: FloatArray  # (n_actions,)
    sample: list[FittedRows]
    excess: FloatArray  # (n_rows, n_actions), no rows where rows are on disk
    limited: list[IntArray]  # (n_limited,)  few, as rows rarely take what they are unlikely to get
    unlimited: list[FloatArray]  # (n_limited,)
    in_memory: list[JustScored]  # all rows, none where they are on disk

    def plus(self, other: "ScoredPart") -> "ScoredPart":
        """Both together; rows in memory are one part."""
        return ScoredPart(*map(add, self, other))

    @property
    def is_complete(self) -> bool:
        """Whether all rows have all scores."""
        return bool((self.n_known == self.n_rows).all())

    @property
    def effective_rows(self) -> FloatArray:  # (n_actions,)
        """(Σw)²/Σw² with w the inverse propensities of those who took each action."""
        return np.asarray(self.inverse**2 / np.where(self.squares > 0, self.squares, 1.0))


def scored_chunks(
    scorer: Scorer, rows: StudyRows, file: ScoreFile | None, plan: EvaluationPlan
) -> ScoredPart:
    """Score all rows, into the file if there is one."""
    chunks = rows.chunks()
    sampled: dict[int, slice] = {}
    if plan.describe or (scorer.corrects and file is None):
        starts = [own.start or 0 for own in chunks.chunks]
        sampled = dict(zip(starts, sampled_rows(rows.training_by_chunk), strict=True))
    if file:
        file.prepare()
    task = _Scoring(scorer=scorer, file=file, sampled=sampled, describes=plan.describe)
    parts: Iterator[ScoredPart] = chunks.by_rows(task.scored).totals(
        partial(reduce, ScoredPart.plus)
    )
    return reduce(ScoredPart.plus, parts)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Scoring:
    """What is done with each chunk."""

    scorer: Scorer
    file: ScoreFile | None
    sampled: dict[int, slice]  # by the first row of a chunk, those that fit is judged by; or none
    describes: bool  # whether overlap is described

    def scored(self, rows: slice, chunks: Iterable[Chunk]) -> Iterator[ScoredPart]:
        return (self._part(rows.start or 0, self.scorer.score(chunk)) for chunk in chunks)

    def _part(self, start: int, just: JustScored) -> ScoredPart:
        chunk, n_actions = just.chunk, len(self.scorer.masked)
        known = np.isfinite(chunk.scores[chunk.training])
        described = chunk.training if self.describes else slice(0, 0)
        support = _support(chunk.data, just.nuisances.propensities, described)
        sample, excess = list[FittedRows](), np.empty((0, n_actions))
        if self.sampled:
            sample = [FittedRows.of(chunk.data, just.nuisances, self.sampled[start])]
        if self.file:
            self.file.write(start, chunk.scores)
        else:  # rows that fill a disk show their variance themselves
            excess = noise_excess(chunk, just.nuisances, self.scorer.plan.clip)
        return ScoredPart(
            len(known),
            known.sum(axis=0),
            *support,
            sample=sample,
            excess=excess,
            limited=[start + just.limited],
            unlimited=[just.unlimited],
            in_memory=[] if self.file else [just],
        )


def _support(
    data: LoggedData, propensities: FloatArray, rows: slice
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """How likely each action was in these rows, and sums of who took it, as in `ScoredPart`."""
    known, actions = propensities[rows], data.actions[rows]
    chances = np.zeros((data.n_actions, len(CHANCE_CUTS) + 1))
    for block in slices(len(known), max(1, NUMBERS_PER_BLOCK // data.n_actions)):
        columns = np.ascontiguousarray(known[block].T)
        # NaN is not above −∞ either, so an unknown propensity is in no bin.
        above = (columns >= _FROM).sum(axis=2)  # (n_bins, n_actions)
        above[:-1] -= above[1:]
        chances += above.T
    logged = known[np.arange(len(known)), actions]
    inverse = np.divide(data.weights_of(rows), logged, out=np.zeros_like(logged), where=logged > 0)
    sums, squares = np.zeros((2, data.n_actions))
    sums += np.bincount(actions, inverse, data.n_actions)
    squares += np.bincount(actions, inverse**2, data.n_actions)
    return chances, sums, squares


# From this propensity on, enough rows take the action to show the variance themselves.
UNLIKELY = 0.1


def noise_excess(
    chunk: Chunk, nuisances: Nuisances, clip: float | None
) -> FloatArray:  # (n_rows, n_actions)
    """The expected less the observed squares of what weights add to scores of rows in memory."""
    data, actions, n_actions = chunk.data, chunk.data.actions.astype(np.int64), chunk.data.n_actions
    row, own = np.arange(data.n_rows), chunk.training
    residuals = np.nan_to_num(data.rewards - nuisances.outcome_means[row, actions])
    squares = np.bincount(actions[own], residuals[own] ** 2, n_actions)
    variances = squares / np.maximum(np.bincount(actions[own], minlength=n_actions), 1.0)
    chances = nuisances.propensities
    unlikely = (chances > 0) & (chances < UNLIKELY)  # False where unknown
    safe = np.where(unlikely, np.maximum(chances, clip or 0.0), 1.0)
    expected = np.where(unlikely, chances / safe**2, 0.0)  # times σ² of the action
    took = actions[:, None] == np.arange(n_actions)
    observed = np.where(unlikely & took, (residuals[:, None] / safe) ** 2, 0.0)
    return np.asarray(expected * variances - observed)


def added_covariances(
    excess: FloatArray, decided: IntArray, weights: FloatArray | None
) -> FloatArray:  # (n_policies, n_policies)
    """What to add to the covariances of policies' values, by their decisions (n_rows, n_policies).

    Only what makes a contrast more uncertain is added: the negative part becomes zero.
    """
    n_rows, n_policies = decided.shape
    weight = np.ones(n_rows) if weights is None else weights
    own = excess[np.arange(n_rows)[:, None], decided] * weight[:, None] ** 2
    found = np.zeros((n_policies, n_policies))
    for first in range(n_policies):
        same = decided == decided[:, first, None]
        found[first] = (own[:, first, None] * same).sum(axis=0)
    sizes, axes = eigh((found + found.T) / 2)
    return np.asarray((axes * np.maximum(sizes, 0.0)) @ axes.T / weight.sum() ** 2)
