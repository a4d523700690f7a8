"""How large scores are: their mean squares, which the regret bounds use (Theorem 1)."""

from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.scoring.values import TOLD, ColumnSums
from fedopl.client.workspace import Workspace
from fedopl.messages.about_differences import ScoreMoments, TellMoments
from fedopl.messages.refusal import RefusalCode


def answer(space: Workspace, _query: TellMoments) -> ScoreMoments:
    """Mean squares of scores; a mean of a few rows is left out."""
    if beyond_declared(space):
        raise RefusedError(RefusalCode.BEYOND_DECLARED)
    sums = ColumnSums(space.study.n_actions + 1)
    by_fold = space.study.evaluation.is_cross_fitted
    for chunk in space.scored.evaluated(space.unscored_chunks(), corrected=by_fold):
        rows = chunk.training
        squares = chunk.scores[rows] ** 2  # (n_training, n_actions)
        weights, groups = chunk.data.weights_of(rows), chunk.data.groups_of(rows)
        sums.add(np.column_stack([_largest(squares), squares]), weights, groups)
    told = sums.told(max(space.limits.minimum_cell, 1))
    fields: dict[str, Any] = dict(zip(TOLD, told, strict=True))
    return ScoreMoments(**fields)


def _largest(squares: FloatArray) -> FloatArray:  # (n_rows,)
    """The largest known square of each row, NaN where none is known."""
    known = np.isfinite(squares)
    largest = np.where(known, squares, 0.0).max(axis=1)
    return np.where(known.any(axis=1), largest, np.nan)


def beyond_declared(space: Workspace) -> dict[str, int]:
    """How many rows contradict each bound of `Declared`, held-out rows included.

    Bounds that no row contradicts are left out. Propensities are those that scores use, before
    clipping: known ones, or else fitted ones.
    """
    declared = space.study.declared
    counts = {"reward": 0, "overlap": 0}
    for chunk in space.unscored_chunks():
        if declared.reward is not None:
            beyond = np.abs(chunk.data.rewards) > declared.reward
            counts["reward"] += int(beyond.sum())
        if declared.overlap is not None:
            chances = space.propensities.of(chunk)
            counts["overlap"] += int((chances < declared.overlap).any(axis=1).sum())
    return {bound: n_rows for bound, n_rows in counts.items() if n_rows}
