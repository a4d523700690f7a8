"""Doubts: how unsure sums of scores over a grid's cells are, by how likely each action was.

A score of an action that a row got with the chance e varies by σ²/e about its mean, whether the row
took the action or not. So Σ w²/e over the rows of a cell, times σ², is the variance of its sum. It
is large where next to nobody got the action, where the scores at hand need not show it.
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

# A chance below one in so many counts as that.
LARGEST_INVERSE = 1024.0


def doubted_rows(
    chunks: Callable[[], Iterable[ScoredChunk]],
    propensities: Predict,
    shares: FloatArray,
    obeyed: ObeyedScores,
) -> Iterable[ScoredRows]:
    """Training rows with doubts in place of scores, and their squared weights.

    `shares` (n_actions,) of rows that took each action stand for chances that are not known.
    """

    def in_doubt() -> Iterable[ScoredChunk]:
        return mapped(partial(_doubted, propensities, shares), chunks())

    return mapped(_with_squared_weights, obeyed.to_sum(in_doubt))


def _doubted(propensities: Predict, shares: FloatArray, chunk: ScoredChunk) -> ScoredChunk:
    chances = propensities(chunk)
    doubts = inverse_chances(np.where(np.isnan(chances), shares, chances))
    return chunk.with_scores(np.where(np.isfinite(chunk.scores), doubts, np.nan))


def _with_squared_weights(rows: ScoredRows) -> ScoredRows:
    return rows if rows.weights is None else replace(rows, weights=rows.weights**2)


def inverse_chances(chances: FloatArray) -> FloatArray:  # shaped as chances
    """1/e up to the next power of two: one row may have nearly all of a cell's sum.

    Then the sum would tell its chance to many digits, and so of its features.
    """
    inverse = 1 / np.clip(chances, 1 / LARGEST_INVERSE, 1.0)
    rounded: FloatArray = 2.0 ** np.ceil(np.log2(inverse) - 1e-9)
    return rounded
