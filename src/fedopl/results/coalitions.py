"""Coalitions of clients, and the worth of learning together for their members."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from fedopl.base.estimates import Estimate
from fedopl.study.mixture import Weights

Members = frozenset[str]
Stability = Literal["surely", "surely not", "cannot tell"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Coalition:
    """Clients that learn together, and each member's gain over its local policy."""

    members: tuple[str, ...]
    weights: Weights  # n̄ among the members
    gains: dict[str, Estimate]  # by member, on its own rows that are valued
    level: float = 0.95  # of intervals, such that those of all coalitions hold together

    @property
    def leavers(self) -> tuple[str, ...]:
        """The members that are surely better off alone: their whole interval lies below 0."""
        return tuple(name for name in self.members if self._interval(name)[1] < 0)

    @property
    def stability(self) -> Stability:
        """Whether no member prefers to leave, as far as its rows can show.

        Surely, if each member's whole interval lies above 0, or its policies decide alike; surely
        not, if some member's lies below.
        """
        if self.leavers:
            return "surely not"
        return "surely" if all(self._gains(name) for name in self.members) else "cannot tell"

    def _gains(self, name: str) -> bool:
        low, high = self._interval(name)
        return low > 0 or low == high == 0

    def _interval(self, name: str) -> tuple[float, float]:
        return self.gains[name].interval(self.level)


@dataclass(frozen=True, eq=False, kw_only=True)
class Coalitions:
    """All coalitions of two clients or more; with many, only all together and all but one."""

    clients: tuple[str, ...]
    compared: tuple[Coalition, ...]  # the largest first
    worth_of_data: dict[str, Estimate]  # by client: what the grand coalition loses without it

    @cached_property
    def found(self) -> dict[Members, Coalition]:
        """The coalitions by their members."""
        return {frozenset(one.members): one for one in self.compared}

    @property
    def grand(self) -> Coalition:
        """The coalition of all clients."""
        return self.found[frozenset(self.clients)]

    @cached_property
    def stable(self) -> tuple[Coalition, ...]:
        """The coalitions that surely no member prefers to leave, the largest first."""
        return tuple(one for one in self.compared if one.stability == "surely")
