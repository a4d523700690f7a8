"""Checks that several kinds of answers share: what cannot be true of counts and of squares."""

import numpy as np

from fedopl.base.arrays import FloatArray, largest_size
from fedopl.base.decompositions import cholesky

# How far from one the mean of a constant one may be.
CORNER_TOLERANCE = 1e-9
CELL_TOLERANCE = 1e-6
# Larger stacks of matrices are checked part by part.
_NUMBERS_AT_ONCE = 1 << 16
# Counts below a client's smallest cell are left out, which may be so large.
SLACK = 100
# How far below zero rounding errors may bring an eigenvalue of a matrix of correlations.
EIGENVALUE_TOLERANCE = 1e-7


def largest_statistic(n_rows: int) -> float:
    """The largest t-statistic of so many rows: |Σv| is at most √n·√Σv²."""
    return float(np.sqrt(n_rows + SLACK)) * (1 + CELL_TOLERANCE)


def fault_in_squares(matrices: FloatArray) -> str | None:
    """Check that sums of squares (…, n, n) have no negative diagonal; they arrive symmetric."""
    if np.diagonal(matrices, axis1=-2, axis2=-1).min(initial=0.0) < 0:
        return "a square is negative"
    return None


def fault_in_moments(matrices: FloatArray, tolerance: float = EIGENVALUE_TOLERANCE) -> str | None:
    """Check that sums of squares and products (…, n, n) are positive semidefinite.

    In particular no product is larger than its two squares allow (Cauchy & Schwarz).
    """
    fault = fault_in_squares(matrices)
    if fault:
        return fault
    apart = matrices.ndim > 2 and matrices.size > _NUMBERS_AT_ONCE
    for part in matrices if apart else (matrices,):
        roots = np.sqrt(np.diagonal(part, axis1=-2, axis2=-1))
        safe = np.where(roots > 0, roots, 1.0)
        correlations = part / safe[..., :, None] / safe[..., None, :]
        allowed = tolerance * part.shape[-1]
        if largest_size(correlations) > 1 + allowed or not _has_factor(correlations, allowed):
            return "products are larger than their squares allow"
    return None


def _has_factor(matrices: FloatArray, allowed: float) -> bool:
    """Whether no eigenvalue is below −`allowed`; a factor is found faster than eigenvalues."""
    try:
        cholesky(matrices + allowed * np.eye(matrices.shape[-1]))
    except np.linalg.LinAlgError:
        return False
    return True


def bordered(grams: FloatArray, products: FloatArray, squares: FloatArray) -> FloatArray:
    """[gram, product; productᵀ, square] (…, n_actions, n + 1, n + 1); actions may share a gram."""
    *stack, width = products.shape
    whole = np.empty((*stack, width + 1, width + 1))
    whole[..., :-1, :-1] = grams
    whole[..., :-1, -1] = whole[..., -1, :-1] = products
    whole[..., -1, -1] = squares
    return whole


def fault_in_counts(counts: FloatArray, n_rows: int) -> str | None:
    """Check that counts (…, n_bins) are whole, not negative, and of no more rows than there are."""
    if (counts < 0).any() or (counts % 1).any():
        return "a count is not a whole number of rows"
    if (counts.sum(axis=-1) > n_rows).any():
        return "counts more rows than there are"
    return None
