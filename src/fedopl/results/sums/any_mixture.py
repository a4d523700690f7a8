"""Policies for any mixture, contrast or subset of clients, from what clients reported once."""

from collections.abc import Collection, Mapping
from typing import Protocol, Self, TypeVar

import numpy as np

from fedopl.base.arrays import BoolArray
from fedopl.base.errors import FederationError, OptionError
from fedopl.base.labels import quoted
from fedopl.base.restricted import Restricted
from fedopl.policies.policy import ByFold, Policy
from fedopl.study.mixture import Weights

Solved = Policy | ByFold | str  # a candidate of a finite class goes by its name
Reported = TypeVar("Reported")


class Statistics(Protocol):
    """Reported once by every client; enough to solve for any mixture without asking again."""

    @property
    def clients(self) -> list[str]:
        """The clients whose statistics are available, sorted."""

    def restricted(self, names: Collection[str]) -> Self:
        """The statistics of these clients, as if there were no others."""

    def solve(self, weights: Weights) -> Solved:
        """The best policy for these weights."""

    def solve_contrast(self, signed: Mapping[str, float]) -> Solved:
        """The policy that maximises Σ_c s_c·Q̂_c(π) on training rows, for any signs.

        No policy takes an action that a client with weight has no score for, since its contrast is
        not known.
        """


class ValuedStatistics(Statistics, Protocol):
    """Statistics that also give the value of any policy of their class on training rows."""

    def value(self, client: str, policy: Solved) -> float:
        """The policy's value at one client."""


def solve_for(statistics: Statistics, weights: Weights) -> Solved:
    """The policy of the clients with weight; rows of others count nowhere, not even in a leaf."""
    weighed = {name: weight for name, weight in weights.items() if weight > 0}
    return statistics.restricted(weighed).solve(weighed)


def only_of(reported: Mapping[str, Reported], names: Collection[str]) -> Mapping[str, Reported]:
    """What these clients reported, left where it is: that of very many clients is not in memory."""
    missing = sorted(set(names) - reported.keys())
    if missing or not names:
        raise OptionError(f"clients: expected some whose sums are there; not so {quoted(missing)}")
    return Restricted(reported, sorted(names))


# Contrasts between clients have weights that may be negative, such as one client's minus all
# others'. Σ_c s_c·Q̂_c(π) with signed weights is Σ_c |s_c|·Q̂'_c(π), where Q̂' has the scores
# sign(s_c)·Γ̂. So any method that learns a policy for a mixture also finds the best one for a
# contrast: squares of features are weighted by |s_c|, products with scores by s_c. At a context x
# the regression then estimates Σ s_c·p_c(x)·μ_c(x; a) over Σ |s_c|·p_c(x). The denominator does not
# depend on the action, so the largest action is that of the contrast.

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
