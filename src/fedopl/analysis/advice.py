"""Advice to a client: whether joining pays, and which of three policies is best for it."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from fedopl.base.estimates import Estimate
from fedopl.base.labels import GLOBAL
from fedopl.results.record import Record
from fedopl.results.value_tables import LOCAL, GainTable
from fedopl.theory.bounds import ValueOfInformation

Decision = Literal["join", "stay alone", "undecided"]
# Advice never asks for more than this many times the available rows.
_MOST_TIMES = 1000


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Whether joining pays for one client, and the reason."""

    client: str
    gain: Estimate  # Q̂_c(π_λ) − Q̂_c(π_c), paired
    modelled: ValueOfInformation | None  # 𝒱_c(λ), if its parts are known
    valued: str = "held-out rows"  # the name of the rows that the gain was measured on
    in_doubt: bool = False  # models do not fit, or policies selected the rows

    @property
    def decision(self) -> Decision:
        """The decision by the measured gain; the regret bounds do not count."""
        low, high = self.gain.interval()
        if self.in_doubt:
            return "undecided"
        if low > 0:
            return "join"
        return "stay alone" if high < 0 else "undecided"

    @property
    def reason(self) -> str:
        """The reason, in plain words."""
        if self.in_doubt:
            if self.gain.is_of_a_part:
                return f"Only {self.gain.rows_used} of its {self.valued} could be valued."
            return "Models do not fit its rows, so what it gains is in doubt."
        return " ".join(part for part in (self._measured(), self._model()) if part)

    def _measured(self) -> str:
        low, high = self.gain.interval()
        size, rows = f"{abs(self.gain.value):.3g}", f"{self.gain.n_rows:,} {self.valued}"
        if self.gain.n_groups:
            rows += f" in {self.gain.n_groups:,} groups"
        found = f"(95 % interval {low:.3g} to {high:.3g}, on {rows})"
        if self.decision == "join":
            return f"The shared policy is worth {size} more than its own {found}."
        if self.decision == "stay alone":
            return f"The shared policy is worth {size} less than its own {found}."
        if low == high:
            return f"Both policies decide alike on {rows}, or on all but a few."
        if math.isinf(high):
            if self.gain.n_groups == 1:
                return f"Its {self.valued} are of 1 group, which cannot decide it."
            return f"It has too few {self.valued} to decide it."
        return f"The {self.valued} cannot decide which policy is better {found}. {self._rows()}"

    def _rows(self) -> str:
        """How many rows a decision would need if the gain is as estimated, in words."""
        reach = self.gain.interval()[1] - self.gain.value
        if abs(self.gain.value) * math.sqrt(_MOST_TIMES) <= reach:
            return "If there is a difference, it is small."
        times = (reach / abs(self.gain.value)) ** 2
        about = float(f"{max(times, 1.1):.2g}")  # two digits, without an exponent
        return f"About {about:,g} times as many would, if the estimate is right."

    def _model(self) -> str:
        if self.modelled is None:
            return ""
        value = self.modelled.value
        if value <= 0:
            return f"The regret bounds do not show that it pays ({value:.3g}); bounds are cautious."
        pays = "pays, too" if self.decision == "join" else "would pay"
        return f"By the regret bounds joining {pays} ({value:.3g})."


def advise(
    gains: GainTable,
    modelled: Mapping[str, ValueOfInformation] | None = None,
    *,
    valued: str = "held-out rows",
    in_doubt: Collection[str] = (),
) -> tuple[Advice, ...]:
    """Advice for every client that reported the value of its local policy, sorted by name.

    `valued` names the rows that gains are measured on. `in_doubt` names the clients whose models
    are in doubt.
    """
    known = modelled or {}
    return tuple(
        Advice(
            client=row.client,
            gain=row.estimate,
            modelled=known.get(row.client),
            valued=valued,
            in_doubt=row.client in in_doubt,
        )
        for row in sorted(gains.rows, key=lambda row: row.client)
        if row.against == LOCAL and row.client != GLOBAL
    )


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
        ways, best = get_args(Way), self.best
        return tuple(way for way in ways if way != best and not self._surely_over(best, way))

    @property
    def decision(self) -> Way | Literal["undecided"]:
        """The best policy if the rows show that it surely is; the regret bounds do not count."""
        return "undecided" if self.in_doubt or self.as_good else self.best

    @property
    def surely_joins(self) -> bool:
        """Whether the policy learned from the client's own rows alone is surely not the best."""
        return not self.in_doubt and "alone" not in (self.best, *self.as_good)

    def _surely_over(self, first: Way, second: Way) -> bool:
        gains: dict[tuple[Way, Way], Estimate] = {
            ("personal", "shared"): self.personal_over_shared,
            ("personal", "alone"): self.personal_over_alone,
            ("shared", "alone"): self.shared_over_alone,
        }
        if (first, second) in gains:
            return gains[first, second].interval(LEVEL)[0] > 0
        return gains[second, first].interval(LEVEL)[1] < 0


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
