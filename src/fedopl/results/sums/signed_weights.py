"""Contrasts between clients: weights that may be negative, such as one client's minus all others'.

Σ_c s_c·Q̂_c(π) with signed weights is Σ_c |s_c|·Q̂'_c(π), where Q̂' has the scores sign(s_c)·Γ̂. So
any method that learns a policy for a mixture also finds the best one for a contrast: squares of
features are weighted by |s_c|, products with scores by s_c. At a context x the regression then
estimates Σ s_c·p_c(x)·μ_c(x; a) over Σ |s_c|·p_c(x). The denominator does not depend on the action,
so the largest action is that of the contrast.
"""

from collections.abc import Collection, Mapping

import numpy as np

from fedopl.base.arrays import BoolArray
from fedopl.base.errors import FederationError, OptionError
from fedopl.base.labels import quoted
from fedopl.study.mixture import Weights

# Weights carry rounding errors: a smaller contrast counts as none.
_NOTHING = 1e-12


def contrast_with_mixture(weights: Weights, target: str) -> Weights:
    """s_c = 1{c = t} − λ_c, so that Σ_c s_c·Q_c = Q_t − Q_λ."""
    if target not in weights:
        raise OptionError(f"target: '{target}' is not one of {quoted(sorted(weights))}")
    signed = {name: (name == target) - weights[name] for name in sorted(weights)}
    return {name: sign if abs(sign) > _NOTHING else 0.0 for name, sign in signed.items()}


def negative(signed: Weights) -> Weights:
    """The contrast with all signs reversed."""
    return {name: -sign for name, sign in signed.items()}


def nonzero(signed: Mapping[str, float], clients: Collection[str]) -> Weights:
    """The clients that count, sorted; each of them must be one of `clients`."""
    counting = {name: sign for name, sign in sorted(signed.items()) if sign}
    missing = [name for name in counting if name not in clients]
    if missing:
        raise OptionError(f"signed: no sums of {quoted(missing)}")
    if not counting:
        raise OptionError("signed: expected a weight that is not 0")
    return counting


def sizes(signed: Weights) -> Weights:
    """|s_c| / Σ|s|."""
    total = sum(abs(sign) for sign in signed.values())
    return {name: abs(sign) / total for name, sign in signed.items()}


def scored_by_all(scored: BoolArray, signed: Weights) -> BoolArray:  # (n_actions,)
    """The actions that every client of the contrast has scores for, `scored` by client."""
    known: BoolArray = np.asarray(scored.all(axis=0))
    if not known.any():
        raise FederationError(f"contrast: no action has scores of all of {quoted(list(signed))}")
    return known
