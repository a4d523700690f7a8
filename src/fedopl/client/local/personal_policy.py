"""The personal policy: everybody else's, moved toward the client's own rows; solved at home."""

from collections.abc import Callable, Iterable

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.client.rows.chunks import ScoredChunk

ScoredChunks = Callable[[], Iterable[ScoredChunk]]


def contrast_squares(parts: ScoredChunks, known: BoolArray) -> float:
    """The mean over training rows of Σ_a (Γ̂(a) − mean of Γ̂)², over known actions."""
    squares, total = 0.0, 0.0
    for chunk in parts():
        rows = chunk.training
        scores: FloatArray = chunk.scores[rows][:, known]
        weights = chunk.weights(rows)
        total += len(scores) if weights is None else float(weights.sum())
        if not known.any():
            continue
        apart = ((scores - scores.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
        squares += float(apart.sum() if weights is None else weights @ apart)
    return squares / total if total else 0.0
