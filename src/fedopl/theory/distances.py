"""Distances between policies on given rows (Appendix B.1): Hamming, and ℓ_{λ,2} on their scores.

An explicit class Π is a matrix of decisions, one row per policy: (n_policies, n_rows).
"""

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import DataError
from fedopl.theory.checks import policy_decisions, score_matrix, weights_of_rows


def hamming_distances(decisions: ArrayLike) -> FloatArray:
    """H(π₁, π₂; x) = (1/n)·Σ 1{π₁(x_i) ≠ π₂(x_i)} for every pair, (n_policies, n_policies).

    Every row counts the same, whichever client it belongs to.
    """
    codes = np.asarray(decisions)
    if codes.ndim != 2 or not codes.size:
        raise DataError(f"decisions: expected shape (n_policies, n_rows), came {codes.shape}")
    return np.stack([(codes != codes[j]).mean(axis=1) for j in range(len(codes))])


def score_distances(scores: ArrayLike, decisions: ArrayLike, row_weights: ArrayLike) -> FloatArray:
    """ℓ_{λ,2}(π₁, π₂; ω) = √(Σ (λ_c/n_c)²·Δ² / sup_{π_a,π_b∈Π} Σ (λ_c/n_c)²·Δ²) for every pair.

    Δ = γ(π₁(x)) − γ(π₂(x)), so the two policies furthest apart have distance 1. All distances are 0
    if no two policies ever differ in score. The paper's lemma N_{ℓ_{λ,2}}(ε, Π; ω) ≤ N_H(ε², Π)
    does not hold for this distance, since its proof lets the cover depend on the policy to be
    covered. It holds for `envelope_score_distances`.
    """
    squares = squared_differences(scores, decisions, row_weights)
    return np.sqrt(squares / (squares.max() or 1.0))


def envelope_score_distances(
    scores: ArrayLike, decisions: ArrayLike, row_weights: ArrayLike
) -> FloatArray:
    """ℓ_{λ,2} with the denominator Σ (λ_c/n_c)²·(max_a γ(a) − min_a γ(a))², for every pair.

    This denominator does not depend on Π. So covering numbers are at most N_H(ε², Π).
    """
    squares = squared_differences(scores, decisions, row_weights)
    matrix = score_matrix(scores)
    weights = weights_of_rows(row_weights, len(matrix))
    envelope = float(weights**2 @ np.ptp(matrix, axis=1) ** 2)
    return np.sqrt(squares / (envelope or 1.0))


def squared_differences(
    scores: ArrayLike, decisions: ArrayLike, row_weights: ArrayLike
) -> FloatArray:
    """Σ (λ_c/n_c)²·Δ² for every pair of policies."""
    matrix = score_matrix(scores)
    codes = policy_decisions(decisions, *matrix.shape)
    weights = weights_of_rows(row_weights, len(matrix))
    chosen = matrix[np.arange(len(matrix)), codes] * weights  # (n_policies, n_rows)
    return np.stack([((chosen - row) ** 2).sum(axis=1) for row in chosen])
