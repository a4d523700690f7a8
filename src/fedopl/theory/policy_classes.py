"""What a class of policies is like on given rows: distances, variances, Rademacher complexity.

An explicit class Π is a matrix of decisions, one row per policy: (n_policies, n_rows). Distances
between policies are Hamming's, and ℓ_{λ,2} on their scores (Appendix B.1). Variances are those of
the bounds: V_c and V (Theorem 1), and V_{λ,n} (Appendix C.2). The empirical weighted Rademacher
complexity (Appendix B.1.3) is exact, by sampling or by an oracle:

ℜ_{λ,n}(F_Π; W) = E_ε[sup_{π∈Π} |Σ (λ_c/n_c)·ε_i·γ_i(π(x_i))|], with independent signs ε = ±1.

The paper's bound (14 + 6κ(Π))·√(V_{λ,n}/n) is in terms of score *differences*. So it cannot hold
for F_Π itself: one policy alone has V_{λ,n} = 0 and a complexity above 0. It holds for the class
centred at one of its policies, `centred_scores`. Theorem 1 needs no more.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import FloatArray, float_array
from fedopl.base.errors import DataError, OptionError
from fedopl.theory.checks import (
    policy_decisions,
    positive,
    probability,
    score_matrix,
    weights_of_rows,
    whole,
)


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


MOST_ROWS_TO_ENUMERATE = 20
# The number of sign vectors per block, so that a block of values stays small.
BLOCK = 4096

# (n_rows, n_actions) of signed, weighted scores → the largest Σ_i scores[i, π(x_i)] over Π.
BestValue = Callable[[FloatArray], float]


@dataclass(frozen=True, kw_only=True)
class MonteCarlo:
    """A mean over random draws."""

    value: float
    standard_error: float
    draws: int


def centred_scores(scores: ArrayLike, reference: ArrayLike) -> FloatArray:
    """γ(a) − γ(π₀(x)): scores as differences from those of a reference policy π₀.

    `reference` holds the decisions of π₀, (n_rows,).
    """
    matrix = score_matrix(scores)
    codes = policy_decisions(np.atleast_2d(np.asarray(reference)), *matrix.shape)[0]
    centred: FloatArray = matrix - matrix[np.arange(len(matrix)), codes][:, None]
    return centred


def exact_rademacher(scores: ArrayLike, decisions: ArrayLike, row_weights: ArrayLike) -> float:
    """ℜ_{λ,n}(F_Π; W) of an explicit class, over all 2^n sign vectors of up to 20 rows."""
    chosen = _weighted_choices(scores, decisions, row_weights)
    n_rows = chosen.shape[1]
    if n_rows > MOST_ROWS_TO_ENUMERATE:
        raise OptionError(
            f"exact_rademacher: {n_rows} rows have too many sign vectors; use sampled_rademacher"
        )
    total = 0.0
    for start in range(0, 2**n_rows, BLOCK):
        numbers = np.arange(start, min(start + BLOCK, 2**n_rows))
        bits = (numbers[:, None] >> np.arange(n_rows)) & 1
        total += float(np.abs((2.0 * bits - 1) @ chosen.T).max(axis=1).sum())
    return total / int(2**n_rows)


def sampled_rademacher(
    scores: ArrayLike,
    decisions: ArrayLike,
    row_weights: ArrayLike,
    *,
    draws: int,
    rng: np.random.Generator,
) -> MonteCarlo:
    """ℜ_{λ,n}(F_Π; W) of an explicit class, over random sign vectors."""
    chosen = _weighted_choices(scores, decisions, row_weights)
    count = whole(draws, "draws", least=2)
    largest = np.array([np.abs(chosen @ _signs(chosen.shape[1], rng)).max() for _ in range(count)])
    return _mean(largest)


def oracle_rademacher(
    scores: ArrayLike,
    row_weights: ArrayLike,
    best_value: BestValue,
    *,
    draws: int,
    rng: np.random.Generator,
) -> MonteCarlo:
    """ℜ_{λ,n}(F_Π; W) of any class that can be searched: sup|·| is the better of two searches.

    `best_value` gets signed, weighted scores. It returns their largest sum over decisions of a
    policy in Π. If its search misses the optimum, the complexity is too small.
    """
    matrix = score_matrix(scores)
    weighted = matrix * weights_of_rows(row_weights, len(matrix))[:, None]
    largest = []
    for _ in range(whole(draws, "draws", least=2)):
        signed = weighted * _signs(len(matrix), rng)[:, None]
        largest.append(max(best_value(signed), best_value(-signed)))
    return _mean(np.array(largest))


def _mean(values: FloatArray) -> MonteCarlo:
    return MonteCarlo(
        value=float(values.mean()),
        standard_error=float(values.std(ddof=1)) / math.sqrt(len(values)),
        draws=len(values),
    )


def _signs(n_rows: int, rng: np.random.Generator) -> FloatArray:
    signs: FloatArray = np.where(rng.integers(0, 2, size=n_rows) == 1, 1.0, -1.0)
    return signs


def _weighted_choices(
    scores: ArrayLike, decisions: ArrayLike, row_weights: ArrayLike
) -> FloatArray:
    """(λ_c/n_c)·γ_i(π(x_i)), (n_policies, n_rows)."""
    matrix = score_matrix(scores)
    if not len(matrix):
        raise DataError("scores: expected at least one row, came none")
    codes = policy_decisions(decisions, *matrix.shape)
    return matrix[np.arange(len(matrix)), codes] * weights_of_rows(row_weights, len(matrix))


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
