"""Total variation from other divergences, each inequality under its own name."""

import math
from dataclasses import dataclass

from fedopl.theory.checks import not_negative, share


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
