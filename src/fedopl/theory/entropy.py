"""The entropy integral κ(Π) = ∫₀¹ √log N_H(ε², Π) dε (Definition "Entropy integral").

N_H is the largest covering number over all sets of contexts. So κ depends on the class and not on
the data. `entropy_integral_on_rows` computes the same integral with covers of given rows.

The covering numbers N are of explicit classes on given rows, or log N_H(ε) of known classes. The
covers of an explicit class consist of its own policies. The paper allows any policies. The
difference is at most a factor of two in the radius.
"""

import math
from collections.abc import Callable
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.base.errors import DataError, OptionError
from fedopl.theory.checks import not_negative, positive, whole
from fedopl.theory.policy_classes import hamming_distances


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


def entropy_integral_on_rows(decisions: ArrayLike) -> float:
    """∫₀¹ √log N_H(ε², Π; x) dε on these rows x, exact, for an explicit class of up to 20 policies.

    The covering number changes only where ε² is a distance between two policies. Covers consist of
    policies in Π.
    """
    distances = hamming_distances(decisions)
    steps = np.unique(np.concatenate([[0.0], np.sqrt(distances).ravel(), [1.0]]))
    return math.fsum(
        (right - left) * math.sqrt(math.log(covering_number(distances, left**2)))
        for left, right in pairwise(steps.tolist())
    )


MOST_POLICIES_TO_ENUMERATE = 20
# Tolerance for rounding, so that a policy exactly on the rim of a ball belongs to the ball.
RIM = 1e-12


def covering_number(distances: ArrayLike, radius: float) -> int:
    """N(ε, Π; x), the fewest policies such that every policy is within ε of one of them.

    It is exact, as it tries every subset, for up to 20 policies. For larger classes, use
    `greedy_covering_number`.
    """
    near = _near(distances, radius)
    if len(near) > MOST_POLICIES_TO_ENUMERATE:
        raise OptionError(
            f"covering_number: {len(near)} policies have too many subsets to try; "
            "use greedy_covering_number"
        )
    sizes = range(1, len(near) + 1)
    return next(size for size in sizes if _some_cover_has(near, size))


def greedy_covering_number(distances: ArrayLike, radius: float) -> int:
    """The size of a greedy cover: at least N(ε, Π; x), and at most 1 + log|Π| times it."""
    near = _near(distances, radius)
    uncovered = np.ones(len(near), dtype=np.bool_)
    size = 0
    while uncovered.any():
        best = int(np.argmax((near & uncovered).sum(axis=1)))
        uncovered &= ~near[best]
        size += 1
    return size


def greedy_packing_number(distances: ArrayLike, radius: float) -> int:
    """The size of a greedy set of policies that are further apart than ε; the set is also a cover.

    At radius 2ε the size is at most N(ε, Π; x); at radius ε it is at least N(ε, Π; x).
    """
    near = _near(distances, radius)
    left = np.ones(len(near), dtype=np.bool_)
    size = 0
    while left.any():
        left &= ~near[int(np.argmax(left))]
        size += 1
    return size


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


def _near(distances: ArrayLike, radius: float) -> BoolArray:
    matrix: FloatArray = np.asarray(distances, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise DataError(f"distances: expected shape (n_policies, n_policies), came {matrix.shape}")
    return matrix <= not_negative(radius, "radius") + RIM


def _some_cover_has(near: BoolArray, size: int) -> bool:
    subsets = combinations(range(len(near)), size)
    return any(near[list(chosen)].any(axis=0).all() for chosen in subsets)


def _at_most_one(radius: float) -> float:
    if not 0 < radius <= 1:
        raise OptionError(f"radius: expected a Hamming distance above 0, up to 1, came {radius:g}")
    return radius
