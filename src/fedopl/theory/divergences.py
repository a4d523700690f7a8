"""Divergences of discrete distributions and of Gaussians, and total variation from others.

Discrete distributions are along the last axis, and all other axes are rows. So a matrix of
propensities gives one divergence per row. `averaged` turns these into a conditional divergence.
Gaussians have closed forms, or named bounds where there is none.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import DataError, OptionError
from fedopl.theory.checks import SUM_TOLERANCE, check_weights, not_negative, share


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A number that is only known to lie between two others."""

    lower: float
    upper: float


def pinsker(kl: float) -> float:
    """TV ≤ √(KL/2).

    Theorem 3 uses TV ≤ √KL, which also holds and is larger by a factor of √2.
    """
    return math.sqrt(not_negative(kl, "kl") / 2)


def bretagnolle_huber(kl: float) -> float:
    """TV ≤ √(1 − exp(−KL)): never above one, and tighter than Pinsker's bound if KL is large."""
    return math.sqrt(-math.expm1(-not_negative(kl, "kl")))


def tv_at_most_from_kl(kl: float) -> float:
    """The tighter of Pinsker's and Bretagnolle and Huber's bounds on TV."""
    return min(pinsker(kl), bretagnolle_huber(kl))


def tv_at_most_from_chi_squared(chi_squared: float) -> float:
    """TV ≤ ½√χ² (Cauchy–Schwarz), and TV ≤ 1."""
    return min(0.5 * math.sqrt(not_negative(chi_squared, "chi_squared")), 1.0)


def kl_at_most_from_chi_squared(chi_squared: float) -> float:
    """KL ≤ log(1 + χ²) (Jensen); the paper only needs that there is no converse."""
    return math.log1p(not_negative(chi_squared, "chi_squared"))


def tv_between_from_affinity(affinity: float) -> Interval:
    """1 − ρ ≤ TV ≤ √(1 − ρ²) for the affinity ρ = ∫√(pq) = 1 − Hellinger²."""
    overlap = share(affinity, "affinity")
    return Interval(lower=1 - overlap, upper=math.sqrt((1 - overlap) * (1 + overlap)))


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


@dataclass(frozen=True, kw_only=True, eq=False)
class Gaussian:
    """N(mean, covariance) of any dimension; plain numbers mean one dimension."""

    mean: ArrayLike  # (n_dimensions,)
    covariance: ArrayLike  # (n_dimensions, n_dimensions)

    def __post_init__(self) -> None:
        mean = np.atleast_1d(np.asarray(self.mean, dtype=np.float64))
        covariance = np.atleast_2d(np.asarray(self.covariance, dtype=np.float64))
        if mean.ndim != 1 or covariance.shape != (len(mean), len(mean)):
            raise DataError(
                f"covariance: expected shape ({mean.size}, {mean.size}), came {covariance.shape}"
            )
        if not np.allclose(covariance, covariance.T, rtol=1e-9, atol=0):
            raise OptionError("covariance: expected a symmetric matrix")
        if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
            raise DataError("Gaussian: expected finite numbers")
        if np.linalg.eigvalsh(covariance).min() <= 0:
            raise OptionError("covariance: expected positive variances in every direction")
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "covariance", covariance)


def gaussian_kl(p: Gaussian, q: Gaussian) -> float:
    """KL(P‖Q) = ½[tr(Σ_q⁻¹Σ_p) + mᵀΣ_q⁻¹m − D + log(|Σ_q|/|Σ_p|)], m = μ_p − μ_q; exact."""
    gap, cov_p, cov_q = _difference(p, q)
    trace = float(np.trace(np.linalg.solve(cov_q, cov_p)))
    shift = float(gap @ np.linalg.solve(cov_q, gap))
    return max(0.0, 0.5 * (trace + shift - len(gap) + _log_det(cov_q) - _log_det(cov_p)))


def gaussian_chi_squared(p: Gaussian, q: Gaussian) -> float:
    """χ²(P‖Q) = |Σ_q|·|Σ_p|^{−½}·|2Σ_q − Σ_p|^{−½}·exp(mᵀ(2Σ_q − Σ_p)⁻¹m) − 1; exact.

    It is finite only if 2Σ_q − Σ_p is positive definite, that is, if Q is not much narrower than P
    in any direction. Otherwise it is infinite.
    """
    gap, cov_p, cov_q = _difference(p, q)
    spread = 2 * cov_q - cov_p
    if np.linalg.eigvalsh(spread).min() <= 0:
        return math.inf
    log_ratio = _log_det(cov_q) - 0.5 * _log_det(cov_p) - 0.5 * _log_det(spread)
    exponent = log_ratio + float(gap @ np.linalg.solve(spread, gap))
    return math.expm1(exponent) if exponent < 700 else math.inf  # exp(710) overflows


def gaussian_affinity(p: Gaussian, q: Gaussian) -> float:
    """∫√(pq) = |Σ_p|^{¼}|Σ_q|^{¼}|Σ̄|^{−½}·exp(−⅛·mᵀΣ̄⁻¹m), Σ̄ = (Σ_p + Σ_q)/2; exact."""
    gap, cov_p, cov_q = _difference(p, q)
    middle = (cov_p + cov_q) / 2
    log_ratio = 0.25 * (_log_det(cov_p) + _log_det(cov_q)) - 0.5 * _log_det(middle)
    return min(1.0, math.exp(log_ratio - 0.125 * float(gap @ np.linalg.solve(middle, gap))))


def gaussian_tv(p: Gaussian, q: Gaussian) -> float:
    """TV(P, Q), exact: in one dimension, or in any dimension if the covariances are equal.

    With equal covariances it is 2Φ(½√(mᵀΣ⁻¹m)) − 1. In one dimension, the densities cross in two
    points; between them, the narrower one is larger. Other pairs have no closed form: see
    `gaussian_tv_interval`.
    """
    from scipy.special import ndtr  # here, as it is slow to import

    gap, cov_p, cov_q = _difference(p, q)
    if np.allclose(cov_p, cov_q, rtol=1e-12, atol=0):
        distance = math.sqrt(float(gap @ np.linalg.solve(cov_p, gap)))
        return float(2 * ndtr(distance / 2) - 1)
    if len(gap) > 1:
        raise OptionError(
            "gaussian_tv: no closed form for unequal covariances in several dimensions; "
            "use gaussian_tv_interval"
        )
    return _tv_of_unequal_variances(float(gap[0]), float(cov_p[0, 0]), float(cov_q[0, 0]))


def gaussian_tv_interval(p: Gaussian, q: Gaussian) -> Interval:
    """Bounds on TV(P, Q) in any dimension, by Hellinger, Pinsker and Bretagnolle–Huber."""
    hellinger = tv_between_from_affinity(gaussian_affinity(p, q))
    from_kl = tv_at_most_from_kl(min(gaussian_kl(p, q), gaussian_kl(q, p)))
    return Interval(lower=hellinger.lower, upper=min(hellinger.upper, from_kl))


def gaussian_outcome_kl(
    means: ArrayLike, other_means: ArrayLike, variance: ArrayLike, other_variance: ArrayLike
) -> FloatArray:
    """KL(p_{Y⃗^c|X}‖p_{Y⃗^k|X}) at each row, for Gaussian outcomes: the outcome part of Theorem 3.

    Means are μ_c(x; a) and μ_k(x; a), (n_rows, n_actions), at client c's contexts. Variances are
    one number or one per action. Y⃗ holds *all* potential outcomes. No data identify their joint
    law. The sum over actions here assumes that they are independent given the context, as in the
    paper's experiments. Average the result with `averaged`.
    """
    left, right = np.asarray(means, dtype=np.float64), np.asarray(other_means, dtype=np.float64)
    if left.shape != right.shape or left.ndim != 2:
        raise DataError(
            f"means: expected two of shape (n_rows, n_actions), came {left.shape}, {right.shape}"
        )
    own, other = _variances(variance, left), _variances(other_variance, left)
    ratio = own / other
    terms = 0.5 * (ratio - 1 - np.log(ratio) + (left - right) ** 2 / other)
    return np.asarray(np.maximum(terms.sum(axis=-1), 0.0))


def _variances(variance: ArrayLike, means: FloatArray) -> FloatArray:
    values = np.asarray(variance, dtype=np.float64)
    if values.ndim and values.shape != (means.shape[1],):
        raise DataError(
            f"variance: expected one number or shape ({means.shape[1]},), came {values.shape}"
        )
    if not np.all((values > 0) & np.isfinite(values)):
        raise OptionError("variance: expected numbers above 0")
    return np.broadcast_to(values, means.shape)


def _tv_of_unequal_variances(gap: float, var_p: float, var_q: float) -> float:
    from scipy.special import ndtr  # here, as it is slow to import

    sd_p, sd_q = math.sqrt(var_p), math.sqrt(var_q)
    # log p − log q = 0 with P at `gap` and Q at 0: a·x² + 2b·x + c = 0.
    a, b = 1 / var_p - 1 / var_q, -gap / var_p
    c = gap**2 / var_p - math.log(var_q / var_p)
    # Compute the root without cancellation; the other follows from the product of both, c/a.
    root = math.sqrt(gap**2 / (var_p * var_q) + a * math.log(var_q / var_p))  # √(b² − a·c)
    larger = -b - math.copysign(root, b)
    low, high = sorted((larger / a, c / larger))
    inside_p = ndtr((high - gap) / sd_p) - ndtr((low - gap) / sd_p)
    inside_q = ndtr(high / sd_q) - ndtr(low / sd_q)
    return float(abs(inside_p - inside_q))


def _difference(p: Gaussian, q: Gaussian) -> tuple[FloatArray, FloatArray, FloatArray]:
    mean_p, mean_q = np.asarray(p.mean), np.asarray(q.mean)
    if mean_p.shape != mean_q.shape:
        raise DataError(f"Gaussians: expected one dimension, came {mean_p.size} and {mean_q.size}")
    return mean_p - mean_q, np.asarray(p.covariance), np.asarray(q.covariance)


def _log_det(matrix: FloatArray) -> float:
    return float(np.linalg.slogdet(matrix)[1])
