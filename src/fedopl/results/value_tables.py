"""Tables of what policies are worth on held-out rows: values, paired gains, leaves of a tree."""

from collections.abc import Iterable
from dataclasses import dataclass

from fedopl.base.errors import OptionError
from fedopl.base.estimates import Estimate
from fedopl.base.labels import GLOBAL, quoted
from fedopl.base.tables import html_table, text_table

# What policies are called in these tables; constant arms have names of their own.
LEARNED, LOGGING, LOCAL = "learned", "logging policy", "local policy"

_Cells = tuple[list[str], list[list[str]]]  # headers and rows


def arm_name(action: str) -> str:
    """What a constant arm is called."""
    return f"everybody gets {action}"


@dataclass(frozen=True, kw_only=True)
class ValueRow:
    """What a policy is worth at one client, or in the mixture."""

    policy: str
    client: str
    estimate: Estimate
    level: float = 0.95

    @property
    def interval(self) -> tuple[float, float]:
        """The interval at this row's level."""
        return self.estimate.interval(self.level)


@dataclass(frozen=True, kw_only=True)
class GainRow:
    """What the learned policy gains over another, on the same rows."""

    against: str
    client: str
    estimate: Estimate

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval."""
        return self.estimate.interval()


@dataclass(frozen=True, kw_only=True)
class LeafRow:
    """One action in one leaf of the learned tree; no estimate where too few rows had a score."""

    leaf: int  # counted from the first answer yes to the last answer no
    share: float  # of people in the mixture who end in the leaf
    action: str
    estimate: Estimate | None


@dataclass(frozen=True)
class ValueTable:
    """Values by policy and client; `print` it."""

    rows: tuple[ValueRow, ...]

    def of(self, policy: str, client: str = GLOBAL) -> Estimate:
        """One cell."""
        found = {(row.policy, row.client): row.estimate for row in self.rows}
        return _cell(found, policy, client)

    def __str__(self) -> str:
        return text_table(*self._cells())

    def _repr_html_(self) -> str:
        return html_table(*self._cells())

    def _cells(self) -> _Cells:
        return _cells("value", [(row.policy, row.client, row) for row in self.rows])


@dataclass(frozen=True)
class GainTable:
    """Paired gains of the learned policy; `print` it."""

    rows: tuple[GainRow, ...]

    def over(self, against: str, client: str = GLOBAL) -> Estimate:
        """One cell."""
        return _cell(
            {(row.against, row.client): row.estimate for row in self.rows}, against, client
        )

    def __str__(self) -> str:
        return text_table(*self._cells())

    def _repr_html_(self) -> str:
        return html_table(*self._cells())

    def _cells(self) -> _Cells:
        return _cells("gain over", [(row.against, row.client, row) for row in self.rows])


def _cell(cells: dict[tuple[str, str], Estimate], policy: str, client: str) -> Estimate:
    if (policy, client) not in cells:
        there = sorted({f"{name} at {where}" for name, where in cells})
        raise OptionError(f"no estimate of '{policy}' at '{client}'; there are {quoted(there)}")
    return cells[policy, client]


def _cells(what: str, rows: Iterable[tuple[str, str, ValueRow | GainRow]]) -> _Cells:
    headers = [what, "client", "estimate", "standard error", "interval", "held-out rows"]
    cells = []
    for policy, client, row in rows:
        low, high = row.interval
        found = row.estimate
        numbers = [f"{found.value:.4g}", f"{found.standard_error:.2g}", f"{low:.4g} to {high:.4g}"]
        cells.append([policy, client, *numbers, f"{found.n_rows:,}"])
    return headers, cells
