"""Who would learn with whom: every coalition's policy, and what it is worth to its members.

A client alone has its own policy. A coalition S has the policy for n̄ restricted to S. Coalitions
differ in whose scores they learn from; scores that rest on shared outcome models rest on all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from fedopl.base.errors import FederationError, OptionError
from fedopl.base.estimates import Estimate
from fedopl.base.labels import quoted
from fedopl.server.mixtures.any_statistics import AnyStatistics, solve
from fedopl.server.mixtures.valued_groups import Ask, Valued, value_groups
from fedopl.study.mixture import Empirical, Weights

# Of more clients than this, only all together and all but one are compared; beyond, nothing is.
MOST_CLIENTS, MOST_LEFT_OUT = 10, 100
# Means over rows are this exact.
TIE = 1e-12

Members = frozenset[str]
ANCHOR = 0  # the place of the grand coalition's policy in every answer


@dataclass(frozen=True, eq=False, kw_only=True)
class Coalition:
    """Clients who learn together, and what each of them gains by it over its own policy."""

    members: tuple[str, ...]
    weights: Weights  # n̄ among the members
    gains: dict[str, Estimate]  # by member, on its own held-out rows

    @property
    def leavers(self) -> tuple[str, ...]:
        """The members that are better off alone, as far as the held-out rows tell."""
        return tuple(name for name in self.members if self.gains[name].value < -TIE)

    @property
    def sure_leavers(self) -> tuple[str, ...]:
        """Those whose 95 % interval says so, too."""
        return tuple(name for name in self.members if self.gains[name].interval()[1] < 0)

    @property
    def is_stable(self) -> bool:
        """No member prefers to leave: by this policy none is worth less than by its own.

        Where gains are small, chance decides: then `may_be_stable` is what can be said.
        """
        return not self.leavers

    @property
    def may_be_stable(self) -> bool:
        """No member surely prefers to leave."""
        return not self.sure_leavers


@dataclass(frozen=True, eq=False, kw_only=True)
class Coalitions:
    """All coalitions of two clients or more; of many clients, only all together and all but one."""

    clients: tuple[str, ...]
    compared: tuple[Coalition, ...]  # the largest first
    worth_of_data: dict[str, Estimate]  # by client: what the grand coalition loses without it

    @cached_property
    def found(self) -> dict[Members, Coalition]:
        """By members."""
        return {frozenset(one.members): one for one in self.compared}

    @property
    def grand(self) -> Coalition:
        """Everybody together."""
        return self.found[frozenset(self.clients)]

    @cached_property
    def stable(self) -> tuple[Coalition, ...]:
        """Those that no member prefers to leave, the largest first."""
        return tuple(coalition for coalition in self.compared if coalition.is_stable)


def compare_coalitions(
    statistics: AnyStatistics, rows: Mapping[str, int], ask: Ask, *, most: int
) -> Coalitions:
    """Solve and value coalitions of these clients, and what each one's data are worth.

    The grand coalition's policy comes first in every query, so that the others are paired with it.
    """
    clients = tuple(sorted(rows))
    if not 2 <= len(clients) <= MOST_LEFT_OUT:
        raise OptionError(f"coalitions: of 2 to {MOST_LEFT_OUT} clients, came {len(clients)}")
    together = _subsets(clients)
    shares = [Empirical().weights({name: rows[name] for name in part}) for part in together]
    policies = [solve(statistics, weights) for weights in shares]
    groups = [[policy] for policy in policies]
    valued = [one for (one,) in value_groups(ask, groups, most=most, anchor=policies[0])]
    _check_told(valued, clients)
    compared = tuple(
        Coalition(
            members=part,
            weights=weights,
            gains={name: one.gain_over_local(name) for name in part},
        )
        for part, weights, one in zip(together, shares, valued, strict=True)
        if len(part) > 1
    )
    worth = _worth_of_data(clients, shares[0], together, valued)
    return Coalitions(clients=clients, compared=compared, worth_of_data=worth)


def _subsets(clients: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Everybody first, then ever fewer; at least all but one, who may be alone."""
    everybody = len(clients)
    fewest = 2 if everybody <= MOST_CLIENTS else everybody - 1
    sizes = range(everybody, min(fewest, everybody - 1) - 1, -1)
    return [part for size in sizes for part in combinations(clients, size)]


def _worth_of_data(
    clients: tuple[str, ...],
    weights: Weights,
    together: list[tuple[str, ...]],
    valued: list[Valued],
) -> dict[str, Estimate]:
    """Q̂_n̄(π_N) − Q̂_n̄(π_{N∖k}), paired."""
    without = {frozenset(part): one for part, one in zip(together, valued, strict=True)}
    found = {}
    for client in clients:
        one = without[frozenset(clients) - {client}]
        found[client] = Valued(one.answers, ANCHOR).gain(weights, one.place)
    return found


def _check_told(valued: list[Valued], clients: tuple[str, ...]) -> None:
    missing = {name for one in valued for name in clients if name not in one.answers}
    if missing:
        raise FederationError(
            f"coalitions: no values of {quoted(sorted(missing))}; leave them out of the rows"
        )
