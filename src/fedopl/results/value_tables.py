"""Rows of estimates, such as values and gains of policies, and the tables that they make."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self, TypeVar

from fedopl.base.computed_once import computed_once
from fedopl.base.errors import OptionError
from fedopl.base.estimates import Estimate, RegionEstimate
from fedopl.base.labels import GLOBAL, quoted
from fedopl.base.tables import AnyRow, RowTable
from fedopl.study.guardrail import Guardrail

# Names of policies in these tables; constant arms have names of their own.
LEARNED, LOGGING, LOCAL = "learned", "logging policy", "local policy"
PERSONAL = "personal policy"
# For rows of each fold the arm that came out best in the other folds, where folds differ in that.
BEST_ARM = "best arm"
# Among candidates, for rows of each fold the one that the other folds chose, where they differ.
BEST_CANDIDATE = "best candidate"
# What is told of the leaves of a tree across folds, beside `LEARNED`.
LEAF_GAIN, ALIKE = f"gain over {LOGGING}", "decided alike"
# Of more clients, tables have what all of them say together, and nothing of one alone.
MOST_VALUED_ALONE = 1_000

OF_ESTIMATE = tuple(field.name for field in fields(Estimate))
_ENDS = ("low", "high")
_NOT_TOLD = (
    "No gains of personal policies were reported. With differential privacy they stay at the "
    "clients; other runs without any have no personal policies."
)
Keeping = Literal["kept", "broken", "not shown"]


def valued_as(chosen: str, valued: Collection[str]) -> str:
    """Whose values are those of the way in which the policy was learned or chosen."""
    return BEST_CANDIDATE if BEST_CANDIDATE in valued else chosen


def arm_name(action: str) -> str:
    """The name of a constant arm."""
    return f"everybody gets {action}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """What a policy is worth, or gains over another, at one client or in the mixture."""

    policy: str = ""  # empty for the one that was learned or chosen
    against: str = ""  # the one that it is compared with; empty for a value
    client: str
    outcome: str = ""  # empty for the one that policies are learned for
    estimate: Estimate
    level: float = 0.95

    @property
    def interval(self) -> tuple[float, float]:
        """The interval at this row's level."""
        return self.estimate.interval(self.level)


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


@dataclass(frozen=True, kw_only=True)
class GuardrailRow:
    """One policy and one guardrail: the change of the outcome, and the verdict.

    `level` is that of an interval whose two ends are bounds: all bounds of a guardrail hold
    together with its confidence.
    """

    guardrail: str
    policy: str
    verdict: Keeping
    level: float = 0.95
    estimate: Estimate | None = None  # of the change; None where it could not be valued

    @property
    def interval(self) -> tuple[float, float] | None:
        """The lower and the upper bound of the change."""
        return self.estimate.interval(self.level) if self.estimate else None


class EstimateTable(RowTable[AnyRow]):
    """Rows with an estimate each, whose numbers have columns of their own."""

    row: ClassVar[type[Any]] = Row
    unsaved: ClassVar[tuple[str, ...]] = ()  # columns that files do without
    implied: ClassVar[Mapping[str, str]] = {}  # what all rows have alike, and no column

    def column(self, name: str) -> list[Any]:
        """What every row says under this name; None where it has no estimate."""
        if name in OF_ESTIMATE:
            return [getattr(estimate, name, None) for estimate in super().column("estimate")]
        if name in _ENDS:
            place = _ENDS.index(name)
            return [ends[place] if ends else None for ends in super().column("interval")]
        return super().column(name)


class PolicyTable(EstimateTable[Row]):
    """Rows by policy, or by the policy that is compared with, and client."""

    heading: ClassVar[str]
    named: ClassVar[str] = "policy"  # the field that names a row beside its client

    @computed_once
    def _by_cell(self) -> dict[tuple[str, str], Row]:
        return {(getattr(row, self.named), row.client): row for row in self}

    def by_cell(self) -> dict[tuple[str, str], Row]:
        """Every row by its policy and client."""
        return self._by_cell

    def estimates(self) -> dict[tuple[str, str], Estimate]:
        """Every estimate by its policy and client."""
        return {cell: row.estimate for cell, row in self.by_cell().items()}

    def cell(self, policy: str, client: str = GLOBAL) -> Estimate:
        """One cell."""
        cells = self.estimates()
        if (policy, client) not in cells:
            there = sorted({f"{name} at {where}" for name, where in cells})
            raise OptionError(f"no estimate of '{policy}' at '{client}'; there are {quoted(there)}")
        return cells[policy, client]

    def column(self, name: str) -> list[Any]:
        """What every row says under this name, or is known of its groups."""
        return super().column(name) if name != "groups" else self.groups_by_row()

    def groups(self) -> dict[str, int]:
        """The number of groups by client, and overall.

        Empty if rows are not grouped, or if a client is a region, whose groups nobody counted.
        """
        found: dict[str, int] = {}
        single = [(row.client, row.estimate) for row in self if row.client != GLOBAL]
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
        of_policy: dict[str, dict[str, int]] = {}
        for row in self:
            of_policy.setdefault(getattr(row, self.named), {})[row.client] = row.estimate.n_rows
        # Some policies are told of in the mixture alone, on the same rows as others.
        rows = {name: own.get(GLOBAL) or tuple(own.items()) for name, own in of_policy.items()}
        known = {
            key: type(self)(row for row in self if rows[getattr(row, self.named)] == key).groups()
            for key in dict.fromkeys(rows.values())
        }
        return [known[rows[getattr(row, self.named)]].get(row.client) for row in self]

    def with_regions(self, regions: Collection[str]) -> Self:
        """The table, in which these clients are aggregators that speak for several."""
        return type(self)(
            replace(row, estimate=RegionEstimate(**vars(row.estimate)))
            if row.client in regions
            else row
            for row in self
        )

    def without_clients(self, policies: Collection[str]) -> Self:
        """The table without single clients' rows of these policies."""
        return type(self)(
            row for row in self if row.client == GLOBAL or getattr(row, self.named) not in policies
        )

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        headers = ["client", "estimate", "standard error", "interval", "rows used"]
        cells, groups = [], self.groups()
        for row, n_groups in zip(self, self.groups_by_row(), strict=True):
            (low, high), found = row.interval, row.estimate
            numbers = [f"{found.value:.4g}", f"{found.standard_error:.2g}"]
            numbers += [f"{low:.4g} to {high:.4g}", found.rows_used]
            numbers += [f"{n_groups:,}"] if groups else []
            cells.append([getattr(row, self.named), row.client, *numbers])
        return [self.heading, *headers, *["groups"] * bool(groups)], cells


AnyPolicyTable = TypeVar("AnyPolicyTable", bound=PolicyTable)
_OF_POLICIES = ("client", *OF_ESTIMATE, "groups", "level", *_ENDS)


class ValueTable(PolicyTable):
    """Values by policy and client; `print` it."""

    heading, columns = "value", ("policy", *_OF_POLICIES)
    of = PolicyTable.cell


class GainTable(PolicyTable):
    """Paired gains of the learned policy; `print` it."""

    heading, named, columns = "gain over", "against", ("against", *_OF_POLICIES)
    unsaved = ("level",)
    over = PolicyTable.cell


class PersonalTable(GainTable):
    """Paired gains of each client's personal policy over other policies; `print` it.

    In the mixture, every client uses its own.
    """

    heading = "personal policy's gain over"
    implied: ClassVar = {"policy": PERSONAL}

    def __str__(self) -> str:
        return super().__str__() if self else _NOT_TOLD

    def _repr_html_(self) -> str:
        return super()._repr_html_() if self else f"<p>{_NOT_TOLD}</p>"


class ImprovementTable(PolicyTable):
    """Paired gains of every policy over what was done, with simultaneous intervals; `print` it."""

    heading, columns = "gain over what was done, by", ("policy", *_OF_POLICIES)
    implied: ClassVar = {"against": LOGGING}
    by = PolicyTable.cell


TABLES: dict[str, type[PolicyTable]] = {
    "values": ValueTable,
    "gains": GainTable,
    "improvements": ImprovementTable,
}


@dataclass(frozen=True, eq=False, kw_only=True)
class SplitTables:
    """What one of several splits of the rows would have shown alone."""

    values: ValueTable
    gains: GainTable
    improvements: ImprovementTable


class OutcomeTable(EstimateTable[Row]):
    """Means of further outcomes by outcome, policy and client; `print` it."""

    columns = ("outcome", "policy", "client", *OF_ESTIMATE, "level", *_ENDS)

    def of(self, outcome: str, policy: str, client: str = GLOBAL) -> Estimate:
        """One cell."""
        (found,) = (
            row.estimate
            for row in self
            if (row.outcome, row.policy, row.client) == (outcome, policy, client)
        )
        return found

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        rows = [[row.outcome, row.policy, row.client, str(row.estimate)] for row in self]
        return ["outcome", "policy", "client", "estimate"], rows


class GuardrailTable(EstimateTable[GuardrailRow]):
    """Guardrails by policy; `print` it."""

    row = GuardrailRow
    columns = ("guardrail", "policy", "verdict", "level", *OF_ESTIMATE, *_ENDS)

    def of(self, policy: str) -> dict[str, GuardrailRow]:
        """All guardrails' rows for this policy."""
        return {row.guardrail: row for row in self if row.policy == policy}

    def keeps_all(self, policy: str) -> bool:
        """Whether the policy is shown to keep every guardrail; true if there are none."""
        own = self.of(policy).values()
        return not self or (bool(own) and all(row.verdict == "kept" for row in own))

    def not_kept(self, policy: str, agreed: Mapping[str, Guardrail]) -> str:
        """The guardrails that a policy is not shown to keep, in words; empty if it keeps all."""
        words = [
            f"'{name}' ({agreed[name].words}) is {_found(row)}"
            for name, row in self.of(policy).items()
            if row.verdict != "kept"
        ]
        return "; ".join(words)

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        cells = []
        for row in self:
            change, bounds = "not valued", ""
            if row.estimate and row.interval:
                change = f"{row.estimate.value:+.4g}"
                bounds = "{:.4g} to {:.4g}".format(*row.interval)
            cells.append([row.guardrail, row.policy, change, bounds, row.verdict])
        return ["guardrail", "policy", "change", "bounds", "verdict"], cells


def _found(row: GuardrailRow) -> str:
    if not row.estimate or not row.interval:
        return "not shown to be kept, as not every client could value it"
    low, high = row.interval
    found = f"the change is {row.estimate.value:+.4g}, between {low:.4g} and {high:.4g}"
    return f"{'broken' if row.verdict == 'broken' else 'not shown to be kept'}: {found}"


class LeafTable(EstimateTable[LeafRow]):
    """Every action in every leaf of the learned tree, as a tuple of rows; `print` it."""

    row = LeafRow
    columns = ("leaf", "share", "action", *OF_ESTIMATE[:-1])

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        rows = [
            [f"{row.leaf}", f"{row.share:.1%}", row.action, str(row.estimate or "–")]
            for row in self
        ]
        return ["leaf", "share of people", "action", "value"], rows
