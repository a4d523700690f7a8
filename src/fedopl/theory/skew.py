"""Skewness of the mixture (Section 5.1, Appendix B.2.1), and what follows from it."""

import math
from collections.abc import Mapping

from fedopl.theory.checks import check_mixture_weights


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
