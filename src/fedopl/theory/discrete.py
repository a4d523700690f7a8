"""Divergences between discrete distributions: mixtures, propensities, small worlds.

Distributions are along the last axis, and all other axes are rows. So a matrix of propensities
gives one divergence per row. `averaged` turns these into a conditional divergence.
"""

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import DataError, OptionError
from fedopl.theory.checks import SUM_TOLERANCE, check_weights


def total_variation(p: ArrayLike, q: ArrayLike) -> FloatArray:
    """TV(p, q) = sup_E |p(E) − q(E)| = ½ Σ |p − q|, from 0 to 1 (Theorem 3's proof)."""
    left, right = _pair(p, q)
    return np.asarray(0.5 * np.abs(left - right).sum(axis=-1))


def kl(p: ArrayLike, q: ArrayLike) -> FloatArray:
    """KL(p‖q) = Σ p·log(p/q) in nats; infinite if q is 0 where p is not."""
    left, right = _pair(p, q)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(left > 0, left * (np.log(left) - np.log(right)), 0.0)
    # Rounding can give −1e-17 if p = q.
    return np.asarray(np.maximum(terms.sum(axis=-1), 0.0))


def chi_squared(p: ArrayLike, q: ArrayLike) -> FloatArray:
    """χ²(p‖q) = Σ (p − q)²/q = Σ p²/q − 1; infinite if q is 0 where p is not."""
    left, right = _pair(p, q)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(left == right, 0.0, (left - right) ** 2 / right)
    return np.asarray(terms.sum(axis=-1))


def affinity(p: ArrayLike, q: ArrayLike) -> FloatArray:
    """Σ √(p·q), the Bhattacharyya coefficient; 1 minus it is the squared Hellinger distance."""
    left, right = _pair(p, q)
    return np.asarray(np.minimum(np.sqrt(left * right).sum(axis=-1), 1.0))


def averaged(divergences: ArrayLike, weights: ArrayLike | None = None) -> float:
    """E_{x∼p_X}[divergence at x]: the conditional divergence of Appendix D.2's chain rule.

    The rows, or their weights, must be those of the *first* distribution's client.
    """
    values = np.asarray(divergences, dtype=np.float64)
    if values.ndim != 1 or not values.size:
        raise DataError(f"divergences: expected shape (n_rows,), came {values.shape}")
    if weights is None:
        return float(values.mean())
    shares = np.asarray(weights, dtype=np.float64)
    if shares.shape != values.shape:
        raise DataError(f"weights: expected shape {values.shape}, came {shares.shape}")
    check_weights(shares, "weights")
    return float(values[shares > 0] @ shares[shares > 0])


def propensity_kl(
    propensities: ArrayLike, others: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """KL(e_c‖e_k | p_{X^c}): the propensity part of Theorem 3, averaged over client c's rows.

    Both arrays are (n_rows, n_actions): the propensities of client c and client k on the contexts
    of client c. Every propensity is in (0, 1] (Assumption 1c).
    """
    for matrix, name in ((propensities, "propensities"), (others, "others")):
        values = np.asarray(matrix, dtype=np.float64)
        if not np.all((values > 0) & (values <= 1)):
            raise OptionError(f"{name}: expected propensities above 0 and at most 1")
    return averaged(np.atleast_1d(kl(propensities, others)), weights)


def _pair(p: ArrayLike, q: ArrayLike) -> tuple[FloatArray, FloatArray]:
    left, right = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    if left.shape != right.shape or not left.ndim:
        raise DataError(
            f"distributions: expected two of one shape, came {left.shape}, {right.shape}"
        )
    for side in (left, right):
        if not np.all(side >= 0):
            raise OptionError("distributions: expected probabilities of 0 or more")
        if np.any(np.abs(side.sum(axis=-1) - 1) > SUM_TOLERANCE):
            raise OptionError("distributions: expected probabilities that add up to 1")
    return left, right
