"""How clients differ, by Theorem 3's three sources, and how far their values differ."""

from fedopl.analysis.attribution import SOURCES, ClientShift, Source
from fedopl.analysis.context_shifts import why_unknown
from fedopl.report.figures.shift_figure import SOURCE_KEYS, Dots, shift_dots
from fedopl.report.joining.advising import IN_WORDS, folded
from fedopl.report.joining.context import MOST_APART, JoiningFacts
from fedopl.report.joining.distance_tables import NOT_REPORTED, distances
from fedopl.report.parts import Heading, Part, Picture, Table, Text
from fedopl.report.words.numbers import Span, decimal, plural

_MOST_DRAWN = 12  # clients in the figure
_CHANCE = "no more than chance"
_WHAT = (
    "Clients may differ in whom they see (covariates), in how they decided so far (propensities) "
    "and in what comes of decisions (outcomes). Each is measured against all others in the "
    "mixture, as the mean square root of a divergence, E[√KL] of Theorem 3; 0 is no difference."
)
_GAUSSIAN = "Contexts are taken for Gaussians with the means and covariances they have."


def shift_parts(facts: JoiningFacts) -> tuple[Part, ...]:
    """The figure, the numbers behind it, and a conclusion; empty if no shift is known."""
    shifts = [facts.shifts[name] for name in facts.clients if name in facts.shifts]
    known = [shift for shift in shifts if shift.parts]
    head, apart = Heading("Where clients differ"), distances(facts)
    if not known and not apart:
        return (head, Text(_why_not(facts), quiet=True)) if shifts else ()
    parts: tuple[Part, ...] = ()
    if known:
        sources = _asked_about(facts, known)
        text = Text(f"{_WHAT} {_why_not(facts)}")
        parts = (text, _drawn(known, sources), _table(known, sources))
    return (head, *parts, *apart)


def _why_not(facts: JoiningFacts) -> str:
    """Which sources are unknown for all clients, and why; otherwise how contexts were compared."""
    n_clients = len(facts.record.statistics.sums)
    if n_clients > MOST_APART:
        return (
            f"How {plural(n_clients, 'client')} differ by source is not worked out: every two "
            f"would have to be compared, which is done for up to {MOST_APART}."
        )
    unknown = why_unknown(facts.record.statistics)
    said = _GAUSSIAN if unknown is None else f"How contexts differ is not known. {unknown}"
    if facts.record.diagnosis is None:
        return f"{said} The other two were not asked about."
    return said


def _asked_about(facts: JoiningFacts, shifts: list[ClientShift]) -> list[Source]:
    """All sources; if clients were not asked about models, only the known ones."""
    if facts.record.diagnosis:
        return list(SOURCES)
    return [source for source in SOURCES if any(source in one.parts for one in shifts)]


def _largest(shift: ClientShift) -> str:
    if len(shift.parts) < len(SOURCES):
        return "not all reported"
    return shift.largest or _CHANCE


def _drawn(shifts: list[ClientShift], sources: list[Source]) -> Picture:
    drawn = _furthest(shifts)[:_MOST_DRAWN]
    items = [
        Dots(
            label=one.client,
            note=_largest(one) if len(sources) == len(SOURCES) else "",
            spans=[_span(one, source) for source in sources],
        )
        for one in drawn
    ]
    words = "; ".join(f"{one.client}: {_most_of(one)}" for one in drawn)
    caption = (
        "How far each client lies from the mixture, by source, with two standard errors to either "
        "side."
    )
    if len(sources) == len(SOURCES):
        caption += " On the right: the largest source, if it is more than chance."
    if len(shifts) > _MOST_DRAWN:
        caption += f" Drawn are the {_MOST_DRAWN} of {len(shifts)} that differ most."
    return Picture(
        name="shifts",
        drawing=shift_dots("shifts", items, [SOURCES.index(source) for source in sources]),
        label=f"Shift from the mixture by source. {words}.",
        caption=caption,
        keys=tuple(SOURCE_KEYS[SOURCES.index(source)] for source in sources),
    )


def _furthest(shifts: list[ClientShift]) -> list[ClientShift]:
    """The clients in their order; if there are too many, those that differ most first."""
    if len(shifts) <= _MOST_DRAWN:
        return shifts
    return sorted(shifts, key=lambda one: (-sum(p.value for p in one.parts.values()), one.client))


def _span(shift: ClientShift, source: Source) -> Span | None:
    part = shift.parts.get(source)
    if part is None:
        return None
    reach = 2 * part.standard_error
    # A root of a divergence is never below zero, but its error bar may reach there.
    return Span(value=part.value, low=max(part.value - reach, 0.0), high=part.value + reach)


def _most_of(shift: ClientShift) -> str:
    known = [source for source in SOURCES if source in shift.parts]
    numbers = ", ".join(f"{source} {decimal(shift.parts[source].value, 2)}" for source in known)
    if len(shift.parts) < len(SOURCES):
        return f"{numbers}, the rest is not reported"
    largest = f"most in {IN_WORDS[shift.largest]}" if shift.largest else _CHANCE
    return f"{largest} ({numbers})"


def _table(shifts: list[ClientShift], sources: list[Source]) -> Part:
    headers = ["Client", *(source.capitalize() for source in sources)]
    rows = [[one.client, *(_cell(one, source) for source in sources)] for one in shifts]
    if len(sources) == len(SOURCES):
        headers.append("Largest source")
        rows = [[*row, _largest(one)] for row, one in zip(rows, shifts, strict=True)]
    table = Table(
        caption="Shift from the mixture, E[√KL], ± two standard errors",
        headers=tuple(headers),
        rows=tuple(map(tuple, rows)),
        text_columns=(len(sources) + 1,),
    )
    return folded(table)


def _cell(shift: ClientShift, source: Source) -> str:
    part = shift.parts.get(source)
    if part is None:
        return NOT_REPORTED
    return f"{decimal(part.value, 2)} ± {decimal(2 * part.standard_error, 2)}"
