"""Checks that answers of several kinds share: what cannot be true of counts and of squares."""

import numpy as np

from fedopl.base.arrays import FloatArray, largest_size

# How far from one the mean of a constant one may be, and a matrix from its transpose.
CORNER_TOLERANCE = 1e-9
CELL_TOLERANCE = 1e-6
SYMMETRY_TOLERANCE = 1e-6
# Larger stacks of matrices are looked at part by part.
_NUMBERS_AT_ONCE = 1 << 16
# Small counts may be rounded up to a client's base, so they can add up to more than its rows.
MOST_BY_ROUNDING, SLACK = 2, 100


def fault_in_squares(matrices: FloatArray) -> str | None:
    """Sums of squares (…, n, n) are symmetric and have no negative diagonal."""
    most = SYMMETRY_TOLERANCE * largest_size(matrices)
    apart = matrices.ndim > 2 and matrices.size > _NUMBERS_AT_ONCE
    for part in matrices if apart else (matrices,):
        if (part - np.swapaxes(part, -1, -2)).max(initial=0.0) > most:
            return "a matrix of squares is not symmetric"
    if np.diagonal(matrices, axis1=-2, axis2=-1).min(initial=0.0) < 0:
        return "a square is negative"
    return None


def fault_in_counts(counts: FloatArray, n_rows: int) -> str | None:
    """Counts (…, n_bins) are whole, not negative, and add up to the rows, but for rounding."""
    if (counts < 0).any() or (counts % 1).any():
        return "a count is not a whole number of rows"
    if (counts.sum(axis=-1) > MOST_BY_ROUNDING * n_rows + SLACK * counts.shape[-1]).any():
        return "counts more rows than there are"
    return None
