"""Tables of policies' values, paired gains, and leaves of a tree."""

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Generic, Self, TypeVar

from fedopl.base.errors import OptionError
from fedopl.base.estimates import Estimate, RegionEstimate
from fedopl.base.labels import GLOBAL, quoted
from fedopl.base.tables import Backend, frame_of, html_table, text_table

# Names of policies in these tables; constant arms have names of their own.
LEARNED, LOGGING, LOCAL = "learned", "logging policy", "local policy"
PERSONAL = "personal policy"
# Of more clients, tables have what all of them say together, and nothing of one alone.
MOST_VALUED_ALONE = 1_000

_NUMBERS_OF_ESTIMATE = tuple(field.name for field in fields(Estimate))

AnyRow = TypeVar("AnyRow", bound="ValueRow | GainRow | ImprovementRow")


# For rows of each fold the arm that came out best in the other folds, where folds differ in that.
BEST_ARM = "best arm"
# What is told of the leaves of a tree across folds, beside `LEARNED`.
LEAF_GAIN, ALIKE = f"gain over {LOGGING}", "decided alike"


# Among candidates, for rows of each fold the one that the other folds chose, where they differ.
BEST_CANDIDATE = "best candidate"


def valued_as(chosen: str, valued: Collection[str]) -> str:
    """Whose values are those of the way in which the policy was learned or chosen."""
    return BEST_CANDIDATE if BEST_CANDIDATE in valued else chosen


def arm_name(action: str) -> str:
    """The name of a constant arm."""
    return f"everybody gets {action}"


@dataclass(frozen=True, kw_only=True)
class _Row:
    client: str
    estimate: Estimate
    level: float = 0.95

    @property
    def interval(self) -> tuple[float, float]:
        """The interval at this row's level."""
        return self.estimate.interval(self.level)


@dataclass(frozen=True, kw_only=True)
class ValueRow(_Row):
    """The value of a policy at one client, or in the mixture."""

    policy: str


@dataclass(frozen=True, kw_only=True)
class GainRow(_Row):
    """The gain of the learned policy over another, on the same rows."""

    against: str


@dataclass(frozen=True, kw_only=True)
class ImprovementRow(_Row):
    """The gain of a policy over what was done, on the same rows."""

    policy: str


_NOT_TOLD = (
    "No gains of personal policies were reported. With differential privacy they stay at the "
    "clients; other runs without any have no personal policies."
)


@dataclass(frozen=True, kw_only=True)
class LeafRow:
    """One action in one leaf of the learned tree; no estimate if too few rows had a score.

    If values are cross-fitted, in place of an action: `LEARNED`, of trees that were learned without
    the fold of each row, `LEAF_GAIN`, of these over what was done, and `ALIKE`, the share of people
    for whom these trees decide on the action of the leaf.
    """

    leaf: int  # counted from the first answer yes to the last answer no
    share: float  # of people in the mixture who end in the leaf
    action: str
    estimate: Estimate | None = None


@dataclass(frozen=True)
class _Table(Generic[AnyRow]):
    rows: tuple[AnyRow, ...] = ()

    _heading: ClassVar[str]
    _policy: ClassVar[str]  # the field of a row that names its policy

    def by_cell(self) -> dict[tuple[str, str], AnyRow]:
        """Every row by its policy and client."""
        return {(getattr(row, self._policy), row.client): row for row in self.rows}

    def _found(self, policy: str, client: str) -> Estimate:
        cells = self.by_cell()
        if (policy, client) not in cells:
            there = sorted({f"{name} at {where}" for name, where in cells})
            raise OptionError(f"no estimate of '{policy}' at '{client}'; there are {quoted(there)}")
        return cells[policy, client].estimate

    def to_frame(self, backend: Backend | None = None) -> Any:
        """One row for each estimate: a frame of pandas, polars or pyarrow; see `frame_of`."""
        found = [row.estimate for row in self.rows]
        intervals = [row.interval for row in self.rows]
        columns: dict[str, list[object]] = {
            self._policy: [getattr(row, self._policy) for row in self.rows],
            "client": [row.client for row in self.rows],
            **{name: [getattr(e, name) for e in found] for name in _NUMBERS_OF_ESTIMATE},
            "groups": [*self.groups_by_row()],
            "level": [row.level for row in self.rows],
            "low": [low for low, _ in intervals],
            "high": [high for _, high in intervals],
        }
        return frame_of(columns, backend)

    def groups(self) -> dict[str, int]:
        """The number of groups by client, and overall.

        Empty if rows are not grouped, or if a client is a region, whose groups nobody counted.
        """
        found: dict[str, int] = {}
        single = [(row.client, row.estimate) for row in self.rows if row.client != GLOBAL]
        if any(isinstance(estimate, RegionEstimate) for _, estimate in single):
            return {}
        for client, estimate in single:
            # If two policies never differ, there is no spread, and no degree of freedom is lost.
            units = estimate.degrees_of_freedom + 1
            found[client] = min(units, found.get(client, units))
        if not any(estimate.n_groups for _, estimate in single):
            return {}
        # A client whose single group shows no spread does not count in the total.
        return {**found, GLOBAL: sum(n for n in found.values() if n > 1)}

    def groups_by_row(self) -> list[int | None]:
        """The number of groups behind each row: policies may be valued on different rows."""
        n_rows: dict[str, dict[str, int]] = {}
        for row in self.rows:
            n_rows.setdefault(getattr(row, self._policy), {})[row.client] = row.estimate.n_rows
        known: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
        found = []
        for row in self.rows:
            own = n_rows[getattr(row, self._policy)]
            if (key := tuple(own.items())) not in known:
                alike = [one for one in self.rows if n_rows[getattr(one, self._policy)] == own]
                known[key] = replace(self, rows=tuple(alike)).groups()
            found.append(known[key].get(row.client))
        return found

    def with_regions(self, regions: Collection[str]) -> Self:
        """The table, in which these clients are aggregators that speak for several."""
        if not regions:
            return self
        rows = [
            replace(row, estimate=RegionEstimate(**vars(row.estimate)))
            if row.client in regions
            else row
            for row in self.rows
        ]
        return replace(self, rows=tuple(rows))

    def without_clients(self, policies: Collection[str]) -> Self:
        """The table without single clients' rows of these policies."""
        kept = [
            row
            for row in self.rows
            if row.client == GLOBAL or getattr(row, self._policy) not in policies
        ]
        return replace(self, rows=tuple(kept))

    def __str__(self) -> str:
        return text_table(*self._cells())

    def _repr_html_(self) -> str:
        return html_table(*self._cells())

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        """Headers and rows."""
        headers = ["client", "estimate", "standard error", "interval", "rows used"]
        cells, groups = [], self.groups()
        for row, n_groups in zip(self.rows, self.groups_by_row(), strict=True):
            (low, high), found = row.interval, row.estimate
            numbers = [f"{found.value:.4g}", f"{found.standard_error:.2g}"]
            numbers += [f"{low:.4g} to {high:.4g}", found.rows_used]
            numbers += [f"{n_groups:,}"] if groups else []
            cells.append([getattr(row, self._policy), row.client, *numbers])
        return [self._heading, *headers, *["groups"] * bool(groups)], cells


class ValueTable(_Table[ValueRow]):
    """Values by policy and client; `print` it."""

    _heading, _policy = "value", "policy"

    def of(self, policy: str, client: str = GLOBAL) -> Estimate:
        """One cell."""
        return self._found(policy, client)


class GainTable(_Table[GainRow]):
    """Paired gains of the learned policy; `print` it."""

    _heading, _policy = "gain over", "against"

    def over(self, against: str, client: str = GLOBAL) -> Estimate:
        """One cell."""
        return self._found(against, client)


class PersonalTable(_Table[GainRow]):
    """Paired gains of each client's personal policy over other policies; `print` it.

    In the mixture, every client uses its own.
    """

    _heading, _policy = "personal policy's gain over", "against"

    def over(self, against: str, client: str = GLOBAL) -> Estimate:
        """One cell."""
        return self._found(against, client)

    def __bool__(self) -> bool:
        return bool(self.rows)

    def __str__(self) -> str:
        return super().__str__() if self.rows else _NOT_TOLD

    def _repr_html_(self) -> str:
        return super()._repr_html_() if self.rows else f"<p>{_NOT_TOLD}</p>"


class ImprovementTable(_Table[ImprovementRow]):
    """Paired gains of every policy over what was done, with simultaneous intervals; `print` it."""

    _heading, _policy = "gain over what was done, by", "policy"

    def by(self, policy: str, client: str = GLOBAL) -> Estimate:
        """One cell."""
        return self._found(policy, client)


@dataclass(frozen=True, eq=False, kw_only=True)
class SplitTables:
    """What one of several splits of the rows would have shown alone."""

    values: ValueTable
    gains: GainTable
    improvements: ImprovementTable
