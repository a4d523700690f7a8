"""Doubts: how uncertain sums of scores over a grid's cells are, given the propensities.

The score of an action that a row got with propensity e varies by σ²/e about its mean, whether the
row took the action or not. So Σ w²/e over the rows of a cell, times σ², is the variance of the
cell's sum. It is large where hardly any row got the action. The scores at hand need not show that.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.client.disk.passes import mapped
from fedopl.client.local.obeyed_scores import ObeyedScores
from fedopl.client.rows.chunks import ScoredChunk, ScoredRows
from fedopl.client.scoring.propensity import Predict

# A propensity below one in this many counts as one in this many.
LARGEST_INVERSE = 1024.0


def doubted_rows(
    chunks: Callable[[], Iterable[ScoredChunk]],
    propensities: Predict,
    shares: FloatArray,
    obeyed: ObeyedScores,
    without: int | None = None,
) -> Iterable[ScoredRows]:
    """Training rows with doubts in place of scores, and their squared weights.

    `shares` (n_actions,) of rows that took each action replace propensities that are not known.
    Rows of a fold are left out if it is given.
    """

    def in_doubt() -> Iterable[ScoredChunk]:
        return mapped(partial(_doubted, propensities, shares), chunks())

    return mapped(_with_squared_weights, obeyed.to_sum(in_doubt, without))


def _doubted(propensities: Predict, shares: FloatArray, chunk: ScoredChunk) -> ScoredChunk:
    chances = propensities(chunk)
    doubts = inverse_chances(np.where(np.isnan(chances), shares, chances))
    return chunk.with_scores(np.where(np.isfinite(chunk.scores), doubts, np.nan))


def _with_squared_weights(rows: ScoredRows) -> ScoredRows:
    return rows if rows.weights is None else replace(rows, weights=rows.weights**2)


def inverse_chances(chances: FloatArray) -> FloatArray:  # shaped as chances
    """1/e, of propensities that are not too small."""
    inverse: FloatArray = 1 / np.clip(chances, 1 / LARGEST_INVERSE, 1.0)
    return inverse
