"""What cannot be true of an answer, though it could be read. Whoever sends it is left out."""

import numpy as np

from fedopl.arrays import FloatArray
from fedopl.study import Study
from fedopl.wire.vocabulary import OutcomeSums, PairSums, ScoreSums, Values

# How far from one the mean of a constant one may be, and a matrix from its transpose.
CORNER_TOLERANCE = 1e-9
SYMMETRY_TOLERANCE = 1e-6


def fault_in_score_sums(sums: ScoreSums, study: Study) -> str | None:
    """Sums that were scaled would buy weight; the mean of one gives them away."""
    if len(sums.grams) not in (1, study.n_actions):
        return "the number of grams fits neither one for all actions nor one for each"
    if (sums.shares < 0).any() or (sums.shares > 1 + CORNER_TOLERANCE).any():
        return "a share of rows is outside 0 to 1"
    corners = sums.grams[:, -1, -1]
    present = sums.shares[: len(corners)] > 0
    if (np.abs(corners[present] - 1) > CORNER_TOLERANCE).any():
        return "the mean of one is not one"
    return _fault_in_squares(sums.grams)


def fault_in_outcome_sums(sums: OutcomeSums) -> str | None:
    """Sums of squares are symmetric and not negative."""
    if (sums.squared_weights < 0).any():
        return "a sum of squared weights is negative"
    return _fault_in_squares(sums.sums)


def fault_in_pair_sums(sums: PairSums) -> str | None:
    """Weighted sums of squares are symmetric and not negative."""
    return _fault_in_squares(sums.grams)


def fault_in_values(values: Values, n_candidates: int) -> str | None:
    """One mean for each candidate, and covariances to go with them."""
    if len(values.means) != n_candidates or values.n_rows < 1:
        return f"valued {len(values.means)} policies of {n_candidates}"
    if values.covariances.shape != (n_candidates, n_candidates):
        return "the covariances do not fit the means"
    if values.degrees_of_freedom < 0:
        return "the degrees of freedom are negative"
    return _fault_in_squares(values.covariances)


def _fault_in_squares(matrices: FloatArray) -> str | None:
    largest = np.abs(matrices).max(initial=0.0)
    if (np.abs(matrices - np.swapaxes(matrices, -1, -2)) > SYMMETRY_TOLERANCE * largest).any():
        return "a matrix of squares is not symmetric"
    if (np.diagonal(matrices, axis1=-2, axis2=-1) < 0).any():
        return "a square is negative"
    return None
