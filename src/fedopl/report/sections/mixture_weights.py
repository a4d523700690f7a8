"""The mixture: how much each client counts, how the weights were found, and their cost."""

from fedopl.report.explain.noise_words import noise_words, weights_by_noise
from fedopl.report.parts import Part, Section, Table, Text, folded_if_long
from fedopl.report.sections.weights_found import weights_found
from fedopl.report.words.numbers import count, decimal, listed, percent
from fedopl.results.record import Record
from fedopl.study.mixture import Weights, agreed_weights, renormalised
from fedopl.theory.skew import skewness

_AGREED = "How much each client counts was agreed before anything ran"
_TO_BE_FOUND = "How to find out how much each client counts was agreed before anything ran"
_KINDS = {
    "empirical": f"{_AGREED}: by its number of rows. Row weights, where a table has them, count "
    "only among the rows of the same client. They move no weight from one client to another.",
    "uniform": f"{_AGREED}: every client counts the same, however many rows it has.",
    "given": f"{_AGREED}: the weights were decided on beforehand.",
    "skewed": f"{_AGREED}: part of everybody's weight was moved to one client.",
    "path": f"{_TO_BE_FOUND}: one client gets as much of the others' weight as is best for it.",
    "minimax": f"{_TO_BE_FOUND}: so that the client that loses most loses as little as possible.",
}
_BY_WEIGHT = f"{_AGREED}: by the sum of its row weights, as the client reported it."


def mixture_weights(record: Record) -> Section:
    """The section."""
    total = sum(record.rows.values())
    parts: tuple[Part, ...] = (
        Text(_counted(record)),
        *_robust(record),
        Text(_meaning(skewness(record.mixture, record.rows), total)),
        *(Text(words) for words in [noise_words(record)] if words),
        _table(record, total),
        *weights_found(record),
    )
    return Section(name="mixture", title="How much each client counts", parts=parts)


def _counted(record: Record) -> str:
    """What determines the weight of each client, in words."""
    return _BY_WEIGHT if record.row_weights else _KINDS[record.study.mixture.kind]


def _agreed(record: Record) -> Weights:
    mixture = record.study.mixture
    return agreed_weights(mixture, record.counted.by(mixture))


def _robust(record: Record) -> tuple[Part, ...]:
    """How much agreed weights were changed, and the cost of that change."""
    how = record.study.mixture.robust
    if how is None:
        return ()
    agreed = _agreed(record)
    left_out = sorted(name for name, weight in record.mixture.items() if not weight)
    moved = sum(abs(record.mixture[name] - agreed[name]) for name in agreed) / 2
    total = sum(record.rows.values())
    before, after = (total / skewness(w, record.rows) for w in (agreed, record.mixture))
    said = (
        f"Then weights were changed to follow the sums on which most clients agree ({how}): "
        f"{percent(moved)} of all weight moved"
    )
    said += f", and {listed(left_out)} count for nothing" if left_out else ""
    return (
        Text(
            f"{said}. The price is precision: the rows are worth as much as {count(after)}, "
            f"instead of {count(before)}, and honest clients that differ lose weight just as "
            "dishonest ones do."
        ),
    )


def _meaning(skew: float, total: int) -> str:
    number = f"The skewness of this weighing is {decimal(skew, 2)}"
    if skew < 1.005:
        return f"{number}, the smallest possible: all {count(total)} rows count in full."
    return (
        f"{number}: the {count(total)} rows are worth as much as {count(total / skew)} rows "
        "with equal weight. That is the price of weighting some clients above their share of "
        "rows."
    )


def _table(record: Record, total: int) -> Part:
    weights = renormalised(record.mixture, record.mixture.keys())
    columns = {"Weight (λ)": weights}
    if record.study.mixture.robust:
        agreed = _agreed(record)
        columns = {"Agreed weight": agreed, "Robust weight (λ)": weights}
    if by_noise := weights_by_noise(record):
        zero = dict.fromkeys(weights, 0.0)
        columns["Weight in learning"] = zero | by_noise.weights
    told = {"Weight of its rows": record.row_weights} if record.row_weights else {}
    table = Table(
        caption="Share of rows and weight of each client",
        headers=("Client", "Rows learned from", "Share of rows (n̄)", *told, *columns),
        rows=tuple(
            (
                name,
                count(record.rows[name]),
                f"{100 * record.rows[name] / total:.1f} %",
                *(decimal(own[name], 0) for own in told.values()),
                *(f"{100 * own[name]:.1f} %" for own in columns.values()),
            )
            for name in sorted(weights)
        ),
    )
    return folded_if_long(table)
