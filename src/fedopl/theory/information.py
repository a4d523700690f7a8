"""The value of taking part for a client by the regret bounds (Appendix E), and when it pays."""

import math
from dataclasses import dataclass

from fedopl.base.errors import OptionError
from fedopl.theory.bounds import PROOF_CONSTANTS
from fedopl.theory.checks import not_negative, positive


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
