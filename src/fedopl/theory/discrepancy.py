"""sup_π |Q_c(π) − Q_λ(π)|: the part of the local regret that is due to shift (proof of Theorem 2).

TV, χ² and KL only bound it. On scores, it is found by a search for the best policy with signed row
weights.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import FloatArray
from fedopl.theory.checks import policy_decisions, score_matrix, weights_of_rows
from fedopl.theory.rademacher import BestValue
from fedopl.theory.skew import contrast_weights


@dataclass(frozen=True, kw_only=True)
class Discrepancy:
    """How far a client's values of policies differ from the mixture's, over a class of policies."""

    above: float  # sup_π Q_c(π) − Q_λ(π)
    below: float  # sup_π Q_λ(π) − Q_c(π)

    @property
    def largest(self) -> float:
        """sup_π |Q_c(π) − Q_λ(π)|."""
        return max(self.above, self.below)

    @property
    def regret_gap(self) -> float:
        """The sum above + below, at most twice the largest; R_c(π) ≤ R_λ(π) + above + below."""
        return self.above + self.below


def discrepancy(
    scores: ArrayLike,
    decisions: ArrayLike,
    weights: ArrayLike,
    client_of_row: ArrayLike,
    target: int,
) -> Discrepancy:
    """The discrepancy of one client, on scores, over an explicit class."""
    matrix = score_matrix(scores)
    codes = policy_decisions(decisions, *matrix.shape)
    contrast = _contrast(weights, client_of_row, target, len(matrix))
    gaps = matrix[np.arange(len(matrix)), codes] @ contrast
    return Discrepancy(above=float(gaps.max()), below=float((-gaps).max()))


def oracle_discrepancy(
    scores: ArrayLike,
    best_value: BestValue,
    weights: ArrayLike,
    client_of_row: ArrayLike,
    target: int,
) -> Discrepancy:
    """The discrepancy of one client, on scores, over any class that can be searched."""
    matrix = score_matrix(scores)
    signed = matrix * _contrast(weights, client_of_row, target, len(matrix))[:, None]
    return Discrepancy(above=best_value(signed), below=best_value(-signed))


def _contrast(weights: ArrayLike, client_of_row: ArrayLike, target: int, n_rows: int) -> FloatArray:
    return weights_of_rows(contrast_weights(weights, client_of_row, target), n_rows)
