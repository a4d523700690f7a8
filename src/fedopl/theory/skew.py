"""Skewness of the mixture (Section 5.1, Appendix B.2.1), and the weight it gives to each row."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.errors import DataError, OptionError
from fedopl.theory.checks import check_mixture_weights, check_weights


def skewness(weights: Mapping[str, float], rows: Mapping[str, int]) -> float:
    """𝔰(λ‖n̄) = E_{c∼λ}[λ_c/n̄_c] = Σ λ_c²/n̄_c = 1 + χ²(λ‖n̄) (Definition "Skewness").

    It is 1 if λ = n̄, and n/n_c if all weight is on client c.
    """
    check_mixture_weights(weights, rows)
    total = sum(rows[name] for name in weights)
    return math.fsum(weight**2 * total / rows[name] for name, weight in weights.items() if weight)


def effective_sample_size(weights: Mapping[str, float], rows: Mapping[str, int]) -> float:
    """n/𝔰(λ‖n̄) = 1 / Σ λ_c²/n_c: the number of equally weighted rows with the same noise.

    Theorem 1 divides by this number. It is n if λ = n̄, and n_c if λ is client c alone.
    """
    return sum(rows.values()) / skewness(weights, rows)


def noise_on_total(weights: Mapping[str, float], rows: Mapping[str, int]) -> float:
    """max_c λ_c/n̄_c = e^{D_∞(λ‖n̄)}: the factor on privacy noise if it is added to a total.

    Take the client with the largest weight for its size. One of its rows moves a weighted mean this
    many times as far as a row moves the plain mean of n rows. The factor is no less than the
    skewness, e^{D_2(λ‖n̄)}.
    """
    return max(_row_ratios(weights, rows))


def noise_of_each(weights: Mapping[str, float], rows: Mapping[str, int]) -> float:
    """√Σ (λ_c/n̄_c)²: the factor on privacy noise if every client adds noise of its own."""
    return math.hypot(*_row_ratios(weights, rows))


def _row_ratios(weights: Mapping[str, float], rows: Mapping[str, int]) -> list[float]:
    check_mixture_weights(weights, rows)
    total = sum(rows[name] for name in weights)
    return [weight * total / rows[name] for name, weight in weights.items() if weight]


def largest_row_weight_bound(weights: Mapping[str, float], rows: Mapping[str, int]) -> float:
    """s_{λ,n} = √(𝔰/n) / √(min_c n_c) ≥ max_c λ_c/n_c (proof of the Rademacher bound).

    It scales the terms that Theorem 1 leaves out as o(√(𝔰/n)). They vanish only as the smallest
    client grows.
    """
    fewest = min(rows.values(), default=0)
    return math.sqrt(1 / (effective_sample_size(weights, rows) * fewest))


def row_weights(weights: ArrayLike, client_of_row: ArrayLike) -> FloatArray:
    """λ_c/n_c for every row, so that Q̂_λ(π) = Σ rows (λ_c/n_c)·Γ̂(π(x)) (Appendix C.1.2).

    `weights` are λ by client code (n_clients,), `client_of_row` the code of each row (n_rows,).
    """
    shares, codes, counts = _clients(weights, client_of_row)
    return shares[codes] / counts[codes]


def contrast_weights(weights: ArrayLike, client_of_row: ArrayLike, target: int) -> FloatArray:
    """(1{c = t} − λ_c)/n_c for every row: scores with these weights add up to Q̂_t(π) − Q̂_λ(π)."""
    shares, codes, counts = _clients(weights, client_of_row)
    if not 0 <= target < len(shares):
        raise OptionError(f"target: expected a client from 0 to {len(shares) - 1}, came {target}")
    if not counts[target]:
        raise DataError("client_of_row: the target has no row")
    contrast: FloatArray = np.eye(len(shares))[target] - shares
    return contrast[codes] / counts[codes]


def _clients(
    weights: ArrayLike, client_of_row: ArrayLike
) -> tuple[FloatArray, IntArray, FloatArray]:
    """Weights by client, the client of each row, and rows by client."""
    shares = np.asarray(weights, dtype=np.float64)
    if shares.ndim != 1:
        raise DataError(f"weights: expected shape (n_clients,), came {shares.shape}")
    check_weights(shares, "weights")
    codes = np.asarray(client_of_row)
    if codes.dtype.kind not in "iu" or codes.ndim != 1:
        raise DataError("client_of_row: expected one client code per row")
    if codes.size and (codes.min() < 0 or codes.max() >= len(shares)):
        raise DataError(f"client_of_row: expected codes from 0 to {len(shares) - 1}, came others")
    counts = np.bincount(codes, minlength=len(shares)).astype(np.float64)
    if np.any((counts == 0) & (shares > 0)):
        raise DataError("client_of_row: a client with weight has no row")
    return shares, codes.astype(np.int64, copy=False), counts
