"""Shared, personal or local: which of three policies is best for a client, and how surely."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from fedopl.base.estimates import Estimate
from fedopl.base.labels import GLOBAL
from fedopl.results.record import Record
from fedopl.results.value_tables import LOCAL

Way = Literal["shared", "personal", "alone"]
# Every two of the three policies are compared. A client's three intervals hold together.
LEVEL = 1 - 0.05 / 3


@dataclass(frozen=True, kw_only=True)
class ThreeWays:
    """Comparison of a client's personal policy, the shared one and its local one."""

    client: str
    personal_over_shared: Estimate
    personal_over_alone: Estimate
    shared_over_alone: Estimate
    in_doubt: bool = False  # models do not fit, or policies selected the rows

    @property
    def best(self) -> Way:
        """The policy with the largest estimate; ties go to the shared, then to the personal one."""
        worth: dict[Way, float] = {
            "shared": 0.0,
            "personal": self.personal_over_shared.value,
            "alone": -self.shared_over_alone.value,
        }
        return max(worth, key=lambda way: worth[way])

    @property
    def as_good(self) -> tuple[Way, ...]:
        """The other policies that rows cannot distinguish from the best, or that decide alike."""
        return tuple(way for way in WAYS if way != self.best and self._surely_over(way) is not True)

    @property
    def decision(self) -> Way | Literal["undecided"]:
        """The best policy if the rows show that it surely is; the regret bounds do not count."""
        return "undecided" if self.in_doubt or self.as_good else self.best

    @property
    def surely_joins(self) -> bool:
        """Whether the policy learned from the client's own rows alone is surely not the best."""
        return not self.in_doubt and "alone" not in (self.best, *self.as_good)

    def _surely_over(self, other: Way) -> bool:
        low, high = self.gain(self.best, other).interval(LEVEL)
        sign = self.sign(self.best, other)
        return (low if sign > 0 else -high) > 0

    def gain(self, first: Way, second: Way) -> Estimate:
        """The estimated gain between two policies, in the direction in which it was computed."""
        pair = {first, second}
        if pair == {"personal", "shared"}:
            return self.personal_over_shared
        return self.personal_over_alone if "personal" in pair else self.shared_over_alone

    @staticmethod
    def sign(first: Way, second: Way) -> int:
        """1 if `gain` is that of the first over the second, −1 if it is the other way round."""
        return 1 if _ORDER.index(first) < _ORDER.index(second) else -1


WAYS: tuple[Way, ...] = ("shared", "personal", "alone")
_ORDER: tuple[Way, ...] = ("personal", "shared", "alone")


def three_ways(record: Record, in_doubt: Collection[str] = ()) -> dict[str, ThreeWays]:
    """The comparison for each client that valued its personal policy; empty for a single client."""
    if len(record.mixture) < 2:
        return {}
    personal, gains = record.personal.estimates(), record.gains.estimates()
    clients = sorted({client for _, client in personal} - {GLOBAL})
    return {
        name: ThreeWays(
            client=name,
            personal_over_shared=personal[record.valued_as, name],
            personal_over_alone=personal[LOCAL, name],
            shared_over_alone=gains[LOCAL, name],
            in_doubt=name in in_doubt,
        )
        for name in clients
        if (LOCAL, name) in gains and {(record.valued_as, name), (LOCAL, name)} <= personal.keys()
    }
