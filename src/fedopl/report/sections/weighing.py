"""The mixture: how much each client counts, and what that costs."""

from fedopl.mixture import renormalised, skewness
from fedopl.report.numbers import count, decimal
from fedopl.report.parts import Folded, Part, Section, Table, Text
from fedopl.server.record import Record

MOST_SHOWN = 30
KINDS = {
    "empirical": "every row counts the same, wherever it lies",
    "uniform": "every client counts the same, however many rows it has",
    "given": "the weights were agreed on beforehand",
    "skewed": "part of everybody's weight was moved to one client",
}


def weighing(record: Record) -> Section:
    """The section."""
    total = sum(record.rows.values())
    skew = skewness(record.mixture, record.rows)
    kind = KINDS[record.study.mixture.kind]
    parts: tuple[Part, ...] = (
        Text(text=f"How much each client counts was agreed before anything ran: {kind}."),
        Text(text=_meaning(skew, total)),
        _table(record, total),
    )
    return Section(name="mixture", title="How much each client counts", parts=parts)


def _meaning(skew: float, total: int) -> str:
    number = f"The skewness of this weighing is {decimal(skew, 2)}"
    if skew < 1.005:
        return f"{number}, the least there can be: all {count(total)} rows count in full."
    return (
        f"{number}: the {count(total)} rows carry as much as {count(total / skew)} rows that "
        "are weighed by their number. That is the price of counting some clients for more than "
        "their share of rows."
    )


def _table(record: Record, total: int) -> Part:
    weights = renormalised(record.mixture, record.mixture.keys())
    rows = tuple(
        (name, count(record.rows[name]), _share(record.rows[name] / total), _share(weights[name]))
        for name in sorted(weights)
    )
    table = Table(
        caption="Share of rows and weight of each client",
        headers=("Client", "Rows learned from", "Share of rows (n̄)", "Weight (λ)"),
        rows=rows,
    )
    return table if len(rows) <= MOST_SHOWN else Folded(summary="All clients", parts=(table,))


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"
