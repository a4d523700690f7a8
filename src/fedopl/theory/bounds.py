"""The regret bounds: Theorem 1 (global), Theorem 2 and its variants (local), Theorem 3 (shift).

All are leading terms: what the theorems write as o_p(√(𝔰/n)) is left out.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import DataError, OptionError
from fedopl.theory.checks import check_weights, not_negative, positive, share
from fedopl.theory.discrepancy import Discrepancy
from fedopl.theory.inequalities import pinsker

# Talagrand's inequality with the constants of Klein & Rio (2005), for rows that are independent
# but not alike: the leading term is √(2·log(1/δ)·D), so that C = 2 serves in √(C·log(C/δ)·D).
KLEIN_RIO = 2.0


@dataclass(frozen=True, kw_only=True)
class UniversalConstants:
    """c₁ and c₂ of Theorem 1: C_{Π,δ} = c₁·κ(Π) + √(c₂·log(c₂/δ))."""

    entropy: float  # c₁
    confidence: float  # c₂

    def __post_init__(self) -> None:
        positive(self.entropy, "entropy")
        if not self.confidence >= 1:
            raise OptionError(f"confidence: expected 1 or more, came {self.confidence:g}")


# Twice those of `oracle_regret_bound`, since V_{λ,n} ≤ 4V·𝔰: c₁ = 2·24, and c₂ the least whole
# number with 2·(56 + √(C·log(C/δ))) ≤ √(c₂·log(c₂/δ)) for every δ, at C = 2.
PROOF_CONSTANTS = UniversalConstants(entropy=48.0, confidence=1752.0)


@dataclass(frozen=True, kw_only=True)
class GlobalBound:
    """Theorem 1 in parts: what it would be without skew, and what the skew adds."""

    complexity: float  # c₁·κ(Π)·√(V/n)
    confidence: float  # √(c₂·log(c₂/δ))·√(V/n)
    skew: float  # the same two, times √𝔰 − 1

    @property
    def total(self) -> float:
        """The bound on R_λ(π̂_λ)."""
        return self.complexity + self.confidence + self.skew


@dataclass(frozen=True, kw_only=True)
class LocalBound:
    """Theorem 2 in parts: the shift that no number of rows removes, and the global regret."""

    shift: float
    global_regret: float

    @property
    def total(self) -> float:
        """The bound on R_c(π̂_λ)."""
        return self.shift + self.global_regret


@dataclass(frozen=True, kw_only=True)
class ShiftBound:
    """Theorem 3 in parts: each bounds its share of TV(D̄_c, D̄_λ)."""

    covariates: float  # E_{k∼λ}[√KL(p_{X^c}‖p_{X^k})]
    propensities: float  # E_{k∼λ}[√KL(e_c‖e_k)]
    outcomes: float  # E_{k∼λ}[√KL(p_{Y^c|X^c}‖p_{Y^k|X^k})]
    joint: float  # E_{k∼λ}[min(1, √(KL/2))] with the KL of all three: tighter, and not split

    @property
    def total(self) -> float:
        """The sum of the parts, as Theorem 3 prints it; it may exceed 1, which TV never does."""
        return self.covariates + self.propensities + self.outcomes


def rademacher_bound(entropy_integral: float, weighted_variance: float, n_rows: float) -> float:
    """(14 + 6κ(Π))·√(V_{λ,n}/n), for the class centred at one of its policies (Appendix C.2).

    The proof's two slips in κ cancel: the sum over the chain is at most 2κ rather than κ, and the
    sum over tails starts at 2⁻¹ rather than 1.
    """
    scale = _scale(weighted_variance, n_rows)
    return (14 + 6 * not_negative(entropy_integral, "entropy_integral")) * scale


def oracle_regret_bound(
    entropy_integral: float, weighted_variance: float, n_rows: float, delta: float
) -> float:
    """(56 + 24κ(Π) + √(C·log(C/δ)))·√(V_{λ,n}/n): Theorem 1 before V and 𝔰 part (Appendix C.3).

    V_{λ,n} contains the skew, and is often far below the 4V·𝔰 that Theorem 1 puts in its place.
    """
    confidence = math.sqrt(_log_term(KLEIN_RIO, delta))
    kappa = not_negative(entropy_integral, "entropy_integral")
    return (56 + 24 * kappa + confidence) * _scale(weighted_variance, n_rows)


def global_regret_bound(
    entropy_integral: float,
    second_moment: float,
    skewness: float,
    n_rows: float,
    delta: float,
    constants: UniversalConstants = PROOF_CONSTANTS,
) -> GlobalBound:
    """Theorem 1: R_λ(π̂_λ) ≤ (c₁·κ(Π) + √(c₂·log(c₂/δ)))·√(V·𝔰(λ‖n̄)/n), with probability 1 − δ.

    V = max_c sup_π E[Γ(π(X))²], with its square, which the proof prints without. For classes much
    smaller than all policies the proof needs the envelope E[max_a Γ(a)²] in place of V: see
    `variances.envelope_second_moment`.
    """
    if not skewness >= 1 - 1e-12:  # rounding may leave n̄'s own a little below 1
        raise OptionError(f"skewness: expected 1 or more, came {skewness:g}")
    scale = _scale(second_moment, n_rows)
    kappa = not_negative(entropy_integral, "entropy_integral")
    complexity = constants.entropy * kappa * scale
    confidence = math.sqrt(_log_term(constants.confidence, delta)) * scale
    return GlobalBound(
        complexity=complexity,
        confidence=confidence,
        skew=(math.sqrt(skewness) - 1) * (complexity + confidence),
    )


def local_regret_bound(
    global_regret: float, total_variation: float, score_bound: float
) -> LocalBound:
    """Theorem 2: R_c(π̂_λ) ≤ U·TV(D̄_c, D̄_λ) + R_λ(π̂_λ), with U = 3B/η and TV from 0 to 1.

    The proof loses a factor 4 and treats the clients' scores as one function, yet what it states
    holds with two actions or more: `outcome_local_regret_bound` gives 4B ≤ 3B/η, as η ≤ ½.
    """
    shift = positive(score_bound, "score_bound") * share(total_variation, "total_variation")
    return LocalBound(shift=shift, global_regret=not_negative(global_regret, "global_regret"))


def outcome_local_regret_bound(
    global_regret: float, total_variation: float, outcome_bound: float
) -> LocalBound:
    """R_c(π̂_λ) ≤ 4B·TV(D_c, D_λ) + R_λ(π̂_λ), for outcomes within ±B: Theorem 2 without scores.

    Q_c(π) = E[Y(π(X))] needs neither scores nor propensities, so TV is that of contexts and
    potential outcomes alone, which is at most TV(D̄_c, D̄_λ).
    """
    shift = 4 * positive(outcome_bound, "outcome_bound") * share(total_variation, "total_variation")
    return LocalBound(shift=shift, global_regret=not_negative(global_regret, "global_regret"))


def chi_squared_local_regret_bound(
    global_regret: float, chi_squared: float, second_moment: float
) -> LocalBound:
    """R_c(π̂_λ) ≤ √(4V·χ²(D̄_c‖D̄_λ)) + R_λ(π̂_λ) (Appendix D.3); scores need not be bounded.

    V is max_c sup_π E[Γ(π(X))²], with the square that the statement omits. The proof treats the
    clients' scores as one function; outcomes are one, and E[Y(π(X))²] ≤ E[Γ(π(X))²].
    """
    moment = not_negative(second_moment, "second_moment")
    shift = math.sqrt(4 * moment * not_negative(chi_squared, "chi_squared")) if moment else 0.0
    return LocalBound(shift=shift, global_regret=not_negative(global_regret, "global_regret"))


def discrepancy_local_regret_bound(global_regret: float, discrepancy: Discrepancy) -> LocalBound:
    """R_c(π̂_λ) ≤ sup_π[Q_c − Q_λ] + sup_π[Q_λ − Q_c] + R_λ(π̂_λ) (first lines of Theorem 2's proof).

    At most the proof's 2·sup_π|Q_c − Q_λ|, and below every bound by a divergence.
    """
    return LocalBound(
        shift=discrepancy.regret_gap,
        global_regret=not_negative(global_regret, "global_regret"),
    )


def shift_bound(
    weights: ArrayLike, covariate_kl: ArrayLike, propensity_kl: ArrayLike, outcome_kl: ArrayLike
) -> ShiftBound:
    """Theorem 3: TV(D̄_c, D̄_λ) ≤ E_{k∼λ}[√KL(X) + √KL(e) + √KL(Y|X)], client c against each k.

    All arrays are by client k, (n_clients,), and 0 for c itself. KL is of c from k, the last two
    averaged over client c's contexts. Pinsker's inequality has a spare factor of √2 here, which
    the parts keep as printed and `joint` does not.
    """
    shares = np.asarray(weights, dtype=np.float64)
    parts = [np.asarray(kl, dtype=np.float64) for kl in (covariate_kl, propensity_kl, outcome_kl)]
    if shares.ndim != 1 or any(part.shape != shares.shape for part in parts):
        raise DataError(f"shift_bound: expected four arrays of shape ({shares.size},)")
    check_weights(shares, "weights")
    if not all(np.all(part >= 0) for part in parts):
        raise OptionError("shift_bound: expected KL divergences of 0 or more")
    covariates, propensities, outcomes = (_mean_root(shares, part) for part in parts)
    joint = [min(1.0, pinsker(float(kl))) for kl in np.sum(parts, axis=0)[shares > 0]]
    return ShiftBound(
        covariates=covariates,
        propensities=propensities,
        outcomes=outcomes,
        joint=float(shares[shares > 0] @ np.array(joint)),
    )


def _mean_root(shares: FloatArray, divergences: FloatArray) -> float:
    weighing = shares > 0
    return float(shares[weighing] @ np.sqrt(divergences[weighing]))


def _scale(variance: float, n_rows: float) -> float:
    return math.sqrt(not_negative(variance, "variance") / positive(n_rows, "n_rows"))


def _log_term(constant: float, delta: float) -> float:
    """c·log(c/δ)."""
    if not 0 < delta < 1:
        raise OptionError(f"delta: expected a probability between 0 and 1, came {delta:g}")
    return constant * math.log(constant / delta)
