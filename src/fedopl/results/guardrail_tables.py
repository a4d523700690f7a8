"""Whether policies keep guardrails, and the further outcomes under each policy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from fedopl.base.estimates import Estimate
from fedopl.base.labels import GLOBAL
from fedopl.base.tables import html_table, text_table
from fedopl.results.value_tables import ValueRow
from fedopl.study.guardrail import Guardrail

Keeping = Literal["kept", "broken", "not shown"]


@dataclass(frozen=True, kw_only=True)
class OutcomeRow(ValueRow):
    """The mean of a further outcome under a policy, at one client or in the mixture."""

    outcome: str


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


def judged(guardrail: Guardrail, change: Estimate, level: float) -> Keeping:
    """Whether both bounds lie within the limit, or both beyond it."""
    if change.standard_error and not change.degrees_of_freedom:
        return "not shown"
    low, high = sorted(guardrail.sign * bound for bound in change.interval(level))
    if high <= guardrail.limit:
        return "kept"
    return "broken" if low > guardrail.limit else "not shown"


@dataclass(frozen=True)
class GuardrailTable:
    """Guardrails by policy; `print` it."""

    rows: tuple[GuardrailRow, ...] = ()

    headers: ClassVar[tuple[str, ...]] = ("guardrail", "policy", "change", "bounds", "verdict")

    def of(self, policy: str) -> dict[str, GuardrailRow]:
        """All guardrails' rows for this policy."""
        return {row.guardrail: row for row in self.rows if row.policy == policy}

    def keeps_all(self, policy: str) -> bool:
        """Whether the policy is shown to keep every guardrail; true if there are none."""
        own = self.of(policy).values()
        return not self.rows or (bool(own) and all(row.verdict == "kept" for row in own))

    def __bool__(self) -> bool:
        return bool(self.rows)

    def __str__(self) -> str:
        return text_table(list(self.headers), self._cells())

    def _repr_html_(self) -> str:
        return html_table(list(self.headers), self._cells())

    def _cells(self) -> list[list[str]]:
        cells = []
        for row in self.rows:
            change, bounds = "not valued", ""
            if row.estimate and row.interval:
                change = f"{row.estimate.value:+.4g}"
                bounds = "{:.4g} to {:.4g}".format(*row.interval)
            cells.append([row.guardrail, row.policy, change, bounds, row.verdict])
        return cells


def not_kept(table: GuardrailTable, agreed: Mapping[str, Guardrail], policy: str) -> str:
    """The guardrails that a policy is not shown to keep, in words; empty if it keeps all."""
    words = [
        f"'{name}' ({agreed[name].words}) is {_found(row)}"
        for name, row in table.of(policy).items()
        if row.verdict != "kept"
    ]
    return "; ".join(words)


def _found(row: GuardrailRow) -> str:
    if not row.estimate or not row.interval:
        return "not shown to be kept, as not every client could value it"
    low, high = row.interval
    found = f"the change is {row.estimate.value:+.4g}, between {low:.4g} and {high:.4g}"
    return f"{'broken' if row.verdict == 'broken' else 'not shown to be kept'}: {found}"


@dataclass(frozen=True)
class OutcomeTable:
    """Further outcomes by outcome, policy and client."""

    rows: tuple[OutcomeRow, ...] = ()

    def of(self, outcome: str, policy: str, client: str = GLOBAL) -> Estimate:
        """One cell."""
        (found,) = (
            row.estimate
            for row in self.rows
            if (row.outcome, row.policy, row.client) == (outcome, policy, client)
        )
        return found

    def __bool__(self) -> bool:
        return bool(self.rows)
