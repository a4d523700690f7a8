"""The mixture: how much each client counts, how that was found, and what it costs."""

from fedopl.report.parts import Part, Section, Table, Text, folded_if_long
from fedopl.report.sections.weights_found import weights_found
from fedopl.report.words.numbers import count, decimal
from fedopl.results.record import Record
from fedopl.study.mixture import renormalised
from fedopl.theory.skew import skewness

_AGREED = "How much each client counts was agreed before anything ran"
_TO_BE_FOUND = "How to find out how much each client counts was agreed before anything ran"
_KINDS = {
    "empirical": f"{_AGREED}: every row counts the same, wherever it lies.",
    "uniform": f"{_AGREED}: every client counts the same, however many rows it has.",
    "given": f"{_AGREED}: the weights were decided on beforehand.",
    "skewed": f"{_AGREED}: part of everybody's weight was moved to one client.",
    "path": f"{_TO_BE_FOUND}: as much of the others' weight goes to one client as serves it best.",
    "minimax": f"{_TO_BE_FOUND}: so that the client that loses most loses as little as can be.",
}


def mixture_weights(record: Record) -> Section:
    """The section."""
    total = sum(record.rows.values())
    parts: tuple[Part, ...] = (
        Text(_KINDS[record.study.mixture.kind]),
        Text(_meaning(skewness(record.mixture, record.rows), total)),
        _table(record, total),
        *weights_found(record),
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
    table = Table(
        caption="Share of rows and weight of each client",
        headers=("Client", "Rows learned from", "Share of rows (n̄)", "Weight (λ)"),
        rows=tuple(
            (
                name,
                count(record.rows[name]),
                f"{100 * record.rows[name] / total:.1f} %",
                f"{100 * weights[name]:.1f} %",
            )
            for name in sorted(weights)
        ),
    )
    return folded_if_long(table)
