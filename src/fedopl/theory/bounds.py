"""The regret bounds: Theorem 1 (global), Theorem 2 and its variants (local), Theorem 3 (shift).

All functions give leading terms. The terms that the theorems write as o_p(√(𝔰/n)) are left out.
From the bounds follows the value of taking part for a client (Appendix E), and when it pays.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import DataError, OptionError
from fedopl.theory.checks import (
    check_weights,
    not_negative,
    policy_decisions,
    positive,
    score_matrix,
    share,
    weights_of_rows,
)
from fedopl.theory.divergences import pinsker
from fedopl.theory.policy_classes import BestValue
from fedopl.theory.skew import contrast_weights

# Talagrand's inequality with the constants of Klein & Rio (2005), for rows that are independent but
# not identically distributed. Its leading term is √(2·log(1/δ)·D), so C = 2 is enough in
# √(C·log(C/δ)·D).
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


# Twice the constants of `oracle_regret_bound`, since V_{λ,n} ≤ 4V·𝔰. So c₁ = 2·24, and c₂ is the
# least whole number with 2·(56 + √(C·log(C/δ))) ≤ √(c₂·log(c₂/δ)) for every δ, at C = 2.
PROOF_CONSTANTS = UniversalConstants(entropy=48.0, confidence=1752.0)


@dataclass(frozen=True, kw_only=True)
class GlobalBound:
    """Theorem 1 in parts: the bound without skew, and what the skew adds."""

    complexity: float  # c₁·κ(Π)·√(V/n)
    confidence: float  # √(c₂·log(c₂/δ))·√(V/n)
    skew: float  # the sum of these two, times √𝔰 − 1

    @property
    def total(self) -> float:
        """The bound on R_λ(π̂_λ)."""
        return self.complexity + self.confidence + self.skew


@dataclass(frozen=True, kw_only=True)
class LocalBound:
    """Theorem 2 in parts: the shift, which more rows do not reduce, and the global regret."""

    shift: float
    global_regret: float

    @property
    def total(self) -> float:
        """The bound on R_c(π̂_λ)."""
        return self.shift + self.global_regret


@dataclass(frozen=True, kw_only=True)
class ShiftBound:
    """Theorem 3 in parts: each source's part of the bound on TV(D̄_c, D̄_λ)."""

    covariates: float  # E_{k∼λ}[√KL(p_{X^c}‖p_{X^k})]
    propensities: float  # E_{k∼λ}[√KL(e_c‖e_k)]
    outcomes: float  # E_{k∼λ}[√KL(p_{Y^c|X^c}‖p_{Y^k|X^k})]
    joint: float  # E_{k∼λ}[min(1, √(KL/2))] with the KL of all three; tighter, but has no parts

    @property
    def total(self) -> float:
        """The sum of the parts, as in Theorem 3. It may exceed 1, although TV never does."""
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
    """(56 + 24κ(Π) + √(C·log(C/δ)))·√(V_{λ,n}/n): Theorem 1 before V and 𝔰 are separated.

    See Appendix C.3. V_{λ,n} includes the skew. It is often far below 4V·𝔰, which Theorem 1 uses in
    its place.
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

    V = max_c sup_π E[Γ(π(X))²]. The proof prints it without the square. For classes much smaller
    than all policies, the proof needs the envelope E[max_a Γ(a)²] in place of V: see
    `envelope_second_moment`.
    """
    if not skewness >= 1 - 1e-12:  # rounding may leave the skewness of n̄ a little below 1
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

    The proof loses a factor of 4 and treats the clients' scores as one function. Still, the theorem
    holds with two actions or more: `outcome_local_regret_bound` has the factor 4B, and 4B ≤ 3B/η as
    η ≤ ½.
    """
    shift = positive(score_bound, "score_bound") * share(total_variation, "total_variation")
    return LocalBound(shift=shift, global_regret=not_negative(global_regret, "global_regret"))


def outcome_local_regret_bound(
    global_regret: float, total_variation: float, outcome_bound: float
) -> LocalBound:
    """R_c(π̂_λ) ≤ 4B·TV(D_c, D_λ) + R_λ(π̂_λ), for outcomes within ±B: Theorem 2 without scores.

    Q_c(π) = E[Y(π(X))] needs neither scores nor propensities. So TV is only that of contexts and
    potential outcomes. It is at most TV(D̄_c, D̄_λ).
    """
    shift = 4 * positive(outcome_bound, "outcome_bound") * share(total_variation, "total_variation")
    return LocalBound(shift=shift, global_regret=not_negative(global_regret, "global_regret"))


def chi_squared_local_regret_bound(
    global_regret: float, chi_squared: float, second_moment: float
) -> LocalBound:
    """R_c(π̂_λ) ≤ √(4V·χ²(D̄_c‖D̄_λ)) + R_λ(π̂_λ) (Appendix D.3); scores need not be bounded.

    V is max_c sup_π E[Γ(π(X))²]; the paper's statement omits the square. The proof treats the
    clients' scores as one function. They are not, but outcomes are, and E[Y(π(X))²] ≤ E[Γ(π(X))²].
    """
    moment = not_negative(second_moment, "second_moment")
    shift = math.sqrt(4 * moment * not_negative(chi_squared, "chi_squared")) if moment else 0.0
    return LocalBound(shift=shift, global_regret=not_negative(global_regret, "global_regret"))


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


def discrepancy_local_regret_bound(global_regret: float, discrepancy: Discrepancy) -> LocalBound:
    """R_c(π̂_λ) ≤ sup_π[Q_c − Q_λ] + sup_π[Q_λ − Q_c] + R_λ(π̂_λ) (first lines of Theorem 2's proof).

    This is at most the proof's 2·sup_π|Q_c − Q_λ|, and below every bound by a divergence.
    """
    return LocalBound(
        shift=discrepancy.regret_gap,
        global_regret=not_negative(global_regret, "global_regret"),
    )


def shift_bound(
    weights: ArrayLike, covariate_kl: ArrayLike, propensity_kl: ArrayLike, outcome_kl: ArrayLike
) -> ShiftBound:
    """Theorem 3: TV(D̄_c, D̄_λ) ≤ E_{k∼λ}[√KL(X) + √KL(e) + √KL(Y|X)], client c against each k.

    All arrays are by client k, (n_clients,), and 0 for c itself. KL is of c from k. The last two
    are averaged over client c's contexts. Theorem 3 uses Pinsker's inequality with a spare factor
    of √2. The parts keep this factor; `joint` does not.
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


@dataclass(frozen=True, kw_only=True)
class ValueOfInformation:
    """𝒱_c(λ) in parts: the regret bound of learning alone, and two terms of learning together."""

    alone: float  # r_c = C₀·κ(Π)·√(V_c/n_c)
    together: float  # r·√𝔰 = C₁·κ(Π)·√(V·𝔰/n)
    shift: float  # U·TV(D̄_c, D̄_λ)

    @property
    def value(self) -> float:
        """𝒱_c(λ): above 0, taking part is worth it."""
        return self.alone - self.together - self.shift


@dataclass(frozen=True, kw_only=True)
class Participation:
    """The (α, β) condition: which shares of r_c the shift and the skew use up."""

    shift_share: float  # U·TV/r_c, must be below α
    skew_share: float  # r·√𝔰/r_c, must be below β

    @property
    def slack(self) -> float:
        """What is left of r_c; 𝒱_c(λ)/r_c."""
        return 1 - self.shift_share - self.skew_share

    @property
    def pays(self) -> bool:
        """Whether some α + β ≤ 1 satisfies both conditions; this is the same as 𝒱_c(λ) > 0."""
        return self.slack > 0

    @property
    def witness(self) -> tuple[float, float] | None:
        """An (α, β) for both conditions, with the slack split evenly; None if none exists."""
        if not self.pays:
            return None
        return (self.shift_share + self.slack / 2, self.skew_share + self.slack / 2)

    def holds_at(self, alpha: float, beta: float) -> bool:
        """TV < α·r_c/U and 𝔰 < β²·r_c²/r², for this α + β ≤ 1."""
        if alpha < 0 or beta < 0 or alpha + beta > 1 + 1e-12:
            raise OptionError(
                f"alpha, beta: expected 0 or more and together at most 1, came {alpha:g}, {beta:g}"
            )
        return self.shift_share < alpha and self.skew_share < beta


def regret_scale(
    entropy_integral: float,
    second_moment: float,
    n_rows: float,
    constant: float = PROOF_CONSTANTS.entropy,
) -> float:
    """C·κ(Π)·√(V/n): r_c from a client's V_c and n_c, or r from V and n.

    The paper leaves C₀ and C₁ open. Learning alone is Theorem 1 with all weight on one client. So
    the same constant can be used for both.
    """
    kappa = not_negative(entropy_integral, "entropy_integral")
    ratio = not_negative(second_moment, "second_moment") / positive(n_rows, "n_rows")
    return positive(constant, "constant") * kappa * math.sqrt(ratio)


def value_of_information(
    alone: float, together: float, skewness: float, shift: float
) -> ValueOfInformation:
    """𝒱_c(λ) = r_c − r·√𝔰(λ‖n̄) − U·TV(D̄_c, D̄_λ), from r_c, r, 𝔰 and the shift term.

    `shift` is U·TV or any other shift term of a local regret bound.
    """
    return ValueOfInformation(
        alone=not_negative(alone, "alone"),
        together=not_negative(together, "together") * math.sqrt(positive(skewness, "skewness")),
        shift=not_negative(shift, "shift"),
    )


def participation(alone: float, together: float, skewness: float, shift: float) -> Participation:
    """TV < α·r_c/U and 𝔰 < β²·r_c²/r² for some α + β ≤ 1: the same as 𝒱_c(λ) > 0.

    If a client's own bound r_c is 0, it has nothing to gain, and no α and β exist.
    """
    value = value_of_information(alone, together, skewness, shift)
    if value.alone == 0:
        return Participation(shift_share=math.inf, skew_share=math.inf)
    return Participation(
        shift_share=value.shift / value.alone, skew_share=value.together / value.alone
    )
