"""Empirical weighted Rademacher complexity (Appendix B.1.3): exact, by sampling, by an oracle.

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

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import DataError, OptionError
from fedopl.theory.checks import policy_decisions, score_matrix, weights_of_rows, whole

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
