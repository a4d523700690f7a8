"""Coalitions of clients, and what learning together is worth to their members."""

from dataclasses import dataclass
from functools import cached_property

from fedopl.base.estimates import Estimate
from fedopl.study.mixture import Weights

# Gains below this are rounding errors of means over rows.
_TIE = 1e-12

Members = frozenset[str]


@dataclass(frozen=True, eq=False, kw_only=True)
class Coalition:
    """Clients who learn together, and what each of them gains by it over its own policy."""

    members: tuple[str, ...]
    weights: Weights  # n̄ among the members
    gains: dict[str, Estimate]  # by member, on its own held-out rows

    @property
    def leavers(self) -> tuple[str, ...]:
        """The members that are better off alone, by the estimates on held-out rows."""
        return tuple(name for name in self.members if self.gains[name].value < -_TIE)

    @property
    def sure_leavers(self) -> tuple[str, ...]:
        """Those whose whole 95 % interval lies below 0."""
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
