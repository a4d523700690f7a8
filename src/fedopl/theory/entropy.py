"""The entropy integral κ(Π) = ∫₀¹ √log N_H(ε², Π) dε (Definition "Entropy integral").

N_H is the largest covering number over all sets of contexts. So κ depends on the class and not on
the data. `entropy_integral_on_rows` computes the same integral with covers of given rows.
"""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from fedopl.theory.checks import whole
from fedopl.theory.covering import (
    covering_number,
    linear_natarajan_dimension,
    natarajan_log_covering_number,
    tree_log_covering_number,
    vc_log_covering_number,
)
from fedopl.theory.distances import hamming_distances


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
