"""Local steps of the CSOAA oracle: stochastic least squares on the scores (Algorithm 2)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import repeat
from operator import iadd
from typing import Protocol

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.decompositions import eigvalsh
from fedopl.client.rows.chunks import ScoredRows
from fedopl.study.training_plans import TrainingPlan

# Rows standardised or gathered at a time: enough to outweigh the calls, and they fit in a cache.
ROWS_STEPPED_AT_ONCE = 8192


# Features (n_rows, n_features + 1), scores and emphasis of some rows. An unknown score has no
# emphasis, a heavy row has more. None if all rows have the same.
Batch = tuple[FloatArray, FloatArray, FloatArray | None]


class StandardisedRows(Protocol):
    """A client's training rows, standardised as the whole federation agreed."""

    @property
    def curvature(self) -> float:
        """The largest eigenvalue of the mean of φφᵀ."""

    @property
    def trace(self) -> float:
        """The trace of the same."""

    @property
    def n_rows(self) -> int:
        """The number of rows."""

    @property
    def width(self) -> int:
        """How many numbers a row has, including the one for the intercept."""

    def gathered(self, picks: IntArray) -> Batch:
        """The features, scores and emphasis of these rows, shaped as picks."""

    def blocks(self) -> Iterable[Batch]:
        """All rows, in blocks that fit in memory; can be iterated repeatedly."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Examples:
    """Standardised rows in memory."""

    features: FloatArray  # (n_rows, n_features + 1)
    scores: FloatArray  # (n_rows, n_actions), zero where unknown
    known: BoolArray | None  # (n_rows, n_actions), None if all are
    weights: FloatArray | None  # (n_rows,), of mean one
    curvature: float
    trace: float

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


@dataclass(frozen=True, eq=False, kw_only=True)
class LocalRound:
    """The rows that the steps of one round take, and how much shorter steps are than at first."""

    picks: IntArray | None  # (n_steps, n_batch_rows), None if every step takes all rows
    decay: float


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
    this: LocalRound,
    mask: FloatArray | None = None,
) -> FloatArray:  # shaped as parameters
    """Take the plan's local steps of this round from these parameters.

    The step is a share of the largest stable step, 1/(curvature + trace/batch). So one rate suits
    features of any scale. `mask` keeps parameters outside an action's block at zero.
    """
    batch = rows.n_rows if this.picks is None else this.picks.shape[1]
    step = plan.rate * this.decay / (rows.curvature + rows.trace / batch + plan.proximal)
    current, passed = parameters.copy(), -parameters
    for parts in _steps(rows, plan.local_steps, this.picks):
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
    typical = rows.trace / rows.width + plan.proximal
    return _mean_of_steps(current, passed, plan.local_steps, step * typical)


def _pull(current: FloatArray, batch: Batch) -> FloatArray:  # shaped as parameters
    features, scores, weight = batch
    error = features.dot(current.T)
    error -= scores
    if weight is not None:
        error *= weight
    pull: FloatArray = error.T.dot(features)
    return pull


def _mean_of_steps(
    last: FloatArray, passed: FloatArray, n_steps: int, forgotten: float
) -> FloatArray:
    """A weighted mean of a round's steps, in which all its batches count the same.

    A batch moves every step after it, but less and less: each step forgets the share `forgotten` of
    all before. Every step except the last has this share as its weight, and the last has weight
    one. So later batches make up for having fewer steps after them.
    """
    weight = min(forgotten, 1.0)
    return (last + weight * passed) / (1 + weight * (n_steps - 1))


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
