"""The entropy integral κ(Π) = ∫₀¹ √log N_H(ε², Π) dε (Definition "Entropy integral").

N_H is the largest covering number over all sets of contexts. So κ depends on the class and not on
the data. It is known from bounds on log N_H(ε) of known classes.
"""

import math
from collections.abc import Callable

from fedopl.base.errors import OptionError
from fedopl.theory.checks import positive, whole


def entropy_integral(log_covering_number: Callable[[float], float]) -> float:
    """∫₀¹ √log N_H(ε²) dε for a class whose log N_H(ε) is given for every Hamming radius ε."""
    from scipy.integrate import quad  # here, as it is slow to import

    # The substitution ε = t² makes the integrand less steep near ε = 0.
    def integrand(t: float) -> float:
        return 2 * t * math.sqrt(max(log_covering_number(t**4), 0.0))

    return float(quad(integrand, 0, 1, limit=200)[0])


def finite_entropy_integral(n_policies: int) -> float:
    """κ(Π) ≤ √log|Π|, with equality if a single context distinguishes all policies.

    The d constant policies are an example: on one context N_H(ε²) = d for every ε < 1.
    """
    return math.sqrt(math.log(whole(n_policies, "n_policies")))


def tree_entropy_integral(depth: int, n_features: int, n_actions: int) -> float:
    """An upper bound on κ(Π) of depth-L trees over p features (after Zhou, Athey & Wager 2023).

    It integrates `tree_log_covering_number`. The result is about √((2^L − 1)·log p + 2^L·log d),
    plus a multiple of √(2^L − 1); the multiple hardly depends on L.
    """
    return entropy_integral(
        lambda radius: tree_log_covering_number(radius, depth, n_features, n_actions)
    )


def vc_entropy_integral(vc_dimension: int) -> float:
    """An upper bound on κ(Π) of two-action classes of VC dimension v; of the order of √v.

    The paper prints κ(Π) = √VC(Π), which is that order without its constant.
    """
    return entropy_integral(lambda radius: vc_log_covering_number(radius, vc_dimension))


def linear_entropy_integral(n_parameters: int, n_actions: int) -> float:
    """An upper bound on κ(Π) of linear policies argmax_a φ(x,a)ᵀθ, θ ∈ ℝ^D.

    The paper says O(√D). By Natarajan's lemma it is O(√(D·log(D·d))); here, constants are included.
    Two actions differ by one linear score, and its VC dimension is at most D.
    """
    dimension = linear_natarajan_dimension(n_parameters)
    if whole(n_actions, "n_actions", least=2) == 2:
        return vc_entropy_integral(dimension)
    return entropy_integral(
        lambda radius: natarajan_log_covering_number(radius, dimension, n_actions)
    )


def tree_log_covering_number(radius: float, depth: int, n_features: int, n_actions: int) -> float:
    """At most (2^L − 1)·log(p·(L/ε + 1)) + 2^L·log d, for trees of depth L.

    After Zhou, Athey & Wager (2023): each of the 2^L − 1 splits has ⌈L/ε⌉ thresholds per feature,
    chosen among the rows that arrive there. They misroute at most a share ε/L of those rows, hence
    at most a share ε in all L levels. A tree of depth 1 has one split.
    """
    positive(radius, "radius")
    splits = int(2 ** whole(depth, "depth", least=0)) - 1
    per_split = math.log(whole(n_features, "n_features") * (depth / radius + 1))
    return splits * per_split + (splits + 1) * math.log(whole(n_actions, "n_actions"))


def vc_log_covering_number(radius: float, vc_dimension: int) -> float:
    """At most log(e·(v + 1)) + v·log(2e/ε), for two actions and VC dimension v (Haussler 1995)."""
    dimension = whole(vc_dimension, "vc_dimension")
    return 1 + math.log(dimension + 1) + dimension * math.log(2 * math.e / _at_most_one(radius))


def natarajan_log_covering_number(radius: float, natarajan_dimension: int, n_actions: int) -> float:
    """At most the largest ℓ with ℓ ≤ D·log(2ℓ/ε + 1) + 2D·log d, for Natarajan dimension D.

    N policies further apart than ε still differ pairwise on some set of 2·log(N)/ε rows. On m rows,
    there are at most m^D·d^{2D} different policies (Natarajan's lemma).
    """
    dimension = whole(natarajan_dimension, "natarajan_dimension")
    fixed = 2 * dimension * math.log(whole(n_actions, "n_actions", least=2))
    _at_most_one(radius)

    def at_most(length: float) -> float:
        return dimension * math.log(2 * length / radius + 1) + fixed

    # The right side is concave in ℓ, so iterating from above falls to the largest fixed point.
    length = fixed
    while length < at_most(length):
        length *= 2
    while length - at_most(length) > 1e-12 * length:
        length = at_most(length)
    return length


def linear_natarajan_dimension(n_parameters: int) -> int:
    """D: policies argmax_a φ(x,a)ᵀθ with θ ∈ ℝ^D have a Natarajan dimension of at most D.

    Shalev-Shwartz & Ben-David (2014), Theorem 29.7. D counts all parameters: p for the paper's
    φ(x,a) = x_a, and d·(p + 1) for all of x and an intercept per action.
    """
    return whole(n_parameters, "n_parameters")


def _at_most_one(radius: float) -> float:
    if not 0 < radius <= 1:
        raise OptionError(f"radius: expected a Hamming distance above 0, up to 1, came {radius:g}")
    return radius
