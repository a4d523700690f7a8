"""Guardrails: the effect of each policy on outcomes that must not get worse, and the evidence."""

from fedopl.base.labels import GLOBAL
from fedopl.report.explain.in_doubt import folded_if_doubted
from fedopl.report.parts import Part, Section, Table, Text
from fedopl.report.words.numbers import Span, percent
from fedopl.report.words.policy_labels import label, opened
from fedopl.results.record import Record
from fedopl.results.value_tables import LOCAL, GuardrailRow
from fedopl.study.guardrail import Guardrail, guarded_columns

_MOST_COLUMNS = 4  # of all together and of clients; outcomes.csv has all
_WORDS = {
    "kept": "kept: all of it lies within the limit",
    "broken": "broken: all of it lies beyond the limit",
    "not shown": "not shown: the limit lies between the bounds",
}


def guardrails_kept(record: Record) -> Section | None:
    """The section, or None if the study has no guardrails."""
    agreed = record.study.guardrails
    if not agreed:
        return None
    if not record.guardrails:
        parts: tuple[Part, ...] = (
            Text("No values were reported, so nothing is known about guardrails."),
        )
        return Section(name="guardrails", title="Guardrails", parts=parts)
    first = record.beyond_guardrails or (
        f"{opened(label(record.study, record.chosen))} is shown to keep every guardrail."
    )
    tables = [_judged(record, name, guardrail) for name, guardrail in agreed.items()]
    tables += [_values(record, column) for column in guarded_columns(record.study)]
    how = (
        "A guardrail is kept where all of the interval of a policy's change lies within its "
        "limit, and broken where all of it lies beyond. All bounds of a guardrail hold together, "
        "over policies and guardrails, with its confidence (Bonferroni). Only a policy that is "
        "shown to keep all guardrails is recommended. Every client valued the same policies on "
        f"the same {record.study.evaluation.valued('rows')}, with its own models of the outcome."
    )
    parts = (Text(first), *folded_if_doubted(record, (Text(how), *tables)))
    return Section(name="guardrails", title="Guardrails", parts=parts)


def _judged(record: Record, name: str, guardrail: Guardrail) -> Table:
    rows = [row for row in record.guardrails.rows if row.guardrail == name]
    return Table(
        caption=f"{name}: {guardrail.words}, with {percent(guardrail.confidence)} confidence",
        headers=("Policy", f"Change of {guardrail.column}", "Bounds", "In words"),
        rows=tuple(_cells(record, row) for row in rows),
        text_columns=(3,),
    )


def _cells(record: Record, row: GuardrailRow) -> tuple[str, ...]:
    what = opened(label(record.study, row.policy))
    if row.estimate is None:
        return what, "–", "–", "not shown: not every client could value it"
    span = Span.of(row.estimate, row.level)
    return what, span.number, span.interval, _WORDS[row.verdict]


def _values(record: Record, column: str) -> Table:
    found = {
        (row.policy, row.client): Span.of(row.estimate, row.level)
        for row in record.outcomes.rows
        if row.outcome == column
    }
    clients = list(dict.fromkeys(client for _, client in found))
    clients = clients if len(clients) <= _MOST_COLUMNS else clients[:1]
    policies = [name for name in dict.fromkeys(name for name, _ in found) if name != LOCAL]
    return Table(
        caption=f"Expected {column} per decision, as logged, with 95 % intervals",
        headers=("Policy", *("All together" if c == GLOBAL else c for c in clients)),
        rows=tuple(
            (
                opened(label(record.study, policy)),
                *(f"{found[policy, c].number} ({found[policy, c].interval})" for c in clients),
            )
            for policy in policies
        ),
    )
