"""Policies for any mixture and any subset of clients, from what clients reported once."""

from collections.abc import Collection, Mapping
from typing import Protocol, Self, TypeVar

from fedopl.base.errors import OptionError
from fedopl.base.labels import quoted
from fedopl.base.restricted import Restricted
from fedopl.policies.by_fold import ByFold
from fedopl.policies.policy import Policy
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


def of_clients(reported: Mapping[str, Reported], names: Collection[str]) -> dict[str, Reported]:
    """What these clients reported, sorted by name."""
    return dict(only_of(reported, names))


def only_of(reported: Mapping[str, Reported], names: Collection[str]) -> Mapping[str, Reported]:
    """The same, left where it is: what very many clients reported is not in memory."""
    missing = sorted(set(names) - reported.keys())
    if missing or not names:
        raise OptionError(f"clients: expected some whose sums are there; not so {quoted(missing)}")
    return Restricted(reported, sorted(names))
