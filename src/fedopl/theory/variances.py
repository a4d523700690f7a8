"""The score variances of the bounds: V_c and V (Theorem 1), and V_{λ,n} (Appendix C.2)."""

import math

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import float_array
from fedopl.theory.checks import policy_decisions, positive, probability, score_matrix
from fedopl.theory.distances import squared_differences
from fedopl.theory.rademacher import BestValue


def largest_second_moment(scores: ArrayLike, decisions: ArrayLike) -> float:
    """V_c = sup_{π∈Π} E[Γ(π(X))²] on one client's rows, for an explicit class.

    V is the largest V_c of all clients. Two proofs in the paper print it without the square.
    """
    matrix = score_matrix(scores)
    codes = policy_decisions(decisions, *matrix.shape)
    return float((matrix[np.arange(len(matrix)), codes] ** 2).mean(axis=1).max())


def oracle_second_moment(scores: ArrayLike, best_value: BestValue) -> float:
    """V_c = sup_{π∈Π} E[Γ(π(X))²] for any class that can be searched: the best value of Γ²/n."""
    matrix = score_matrix(scores)
    return best_value(matrix**2 / len(matrix))


def envelope_second_moment(scores: ArrayLike) -> float:
    """E[max_a Γ(a)²] ≥ V_c: the V_c of the class of all policies."""
    return float((score_matrix(scores) ** 2).max(axis=1).mean())


def weighted_variance(scores: ArrayLike, decisions: ArrayLike, row_weights: ArrayLike) -> float:
    """V_{λ,n} = sup_{π_a,π_b∈Π} Σ_c (λ_c²/n̄_c)·E_c[Δ²], Δ = Γ(π_a(X)) − Γ(π_b(X)); ≤ 4V·𝔰(λ‖n̄).

    With the weight λ_c/n_c on each row, it is n·sup Σ (λ_c/n_c)²·Δ².
    """
    squares = squared_differences(scores, decisions, row_weights)
    return float(squares.max()) * len(score_matrix(scores))


def envelope_variance(scores: ArrayLike, row_weights: ArrayLike) -> float:
    """Σ_c (λ_c²/n̄_c)·E_c[(max_a Γ(a) − min_a Γ(a))²] ≥ V_{λ,n}, for any class.

    With it in place of V_{λ,n}, the chaining argument of Appendix C.2 is sound (see
    `score_distances`).
    """
    matrix = score_matrix(scores)
    everything = np.stack([matrix.argmax(axis=1), matrix.argmin(axis=1)])
    return weighted_variance(matrix, everything, row_weights)


def score_bound(outcome_bound: float, overlap: float) -> float:
    """U = 3B/η ≥ B + 2B/η ≥ |Γ(a)|, for outcomes within ±B and propensities of η or more."""
    return 3 * positive(outcome_bound, "outcome_bound") / probability(overlap, "overlap")


def global_score_bound(outcome_bounds: ArrayLike, overlaps: ArrayLike) -> float:
    """U = 3B/η with B = max_c B_c and η = min_c η_c (Theorem 2)."""
    largest = float(np.max(float_array(outcome_bounds, "outcome_bounds", 1), initial=0.0))
    smallest = float(np.min(float_array(overlaps, "overlaps", 1), initial=math.inf))
    return score_bound(largest, smallest)
