"""How clients differ, by Theorem 3's three sources, and how far apart they lie."""

import math

from fedopl.analysis.attribution import SOURCES, ClientShift, Source, SourceShift, why_unknown
from fedopl.analysis.modelled_gains import largest_score
from fedopl.report.figures.forest import SOURCE_KEYS, Dots, shift_dots
from fedopl.report.joining.advising import IN_WORDS, MOST_APART, JoiningFacts, folded
from fedopl.report.parts import Heading, Part, Picture, Table, Text
from fedopl.report.words.numbers import Span, decimal, plural
from fedopl.report.words.policy_labels import OutcomeWords
from fedopl.results.diagnosis import Classifier, Diagnosis

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
    if not known:
        return (head, *apart)
    # All sources; if clients were not asked about models, only the known ones.
    asked = facts.record.diagnosis is not None
    sources = [one for one in SOURCES if asked or any(one in shift.parts for shift in known)]
    text = Text(f"{_WHAT} {_why_not(facts)}")
    return (head, text, _drawn(known, sources), _table(known, sources), *apart)


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


def _largest(shift: ClientShift) -> str:
    if len(shift.parts) < len(SOURCES):
        return "not all reported"
    return shift.largest or _CHANCE


def _drawn(shifts: list[ClientShift], sources: list[Source]) -> Picture:
    drawn = shifts
    if len(shifts) > _MOST_DRAWN:  # those that differ most first
        apart = {one.client: -sum(part.value for part in one.parts.values()) for one in shifts}
        drawn = sorted(shifts, key=lambda one: (apart[one.client], one.client))[:_MOST_DRAWN]
    items = [
        Dots(
            label=one.client,
            note=_largest(one) if len(sources) == len(SOURCES) else "",
            spans=[_span(one.parts.get(source)) for source in sources],
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


def _span(part: SourceShift | None) -> Span | None:
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
    rows = [[one.client, *(_cell(one.parts.get(source)) for source in sources)] for one in shifts]
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


def _cell(part: SourceShift | None) -> str:
    if part is None:
        return NOT_REPORTED
    return f"{decimal(part.value, 2)} ± {decimal(2 * part.standard_error, 2)}"


NOT_REPORTED = "not reported"


def distances(facts: JoiningFacts) -> tuple[Part, ...]:
    """The table of distances; empty if clients were not asked."""
    diagnosis = facts.record.diagnosis
    if diagnosis is None:
        return ()
    shown = {title: cells for title, cells in _columns(facts, diagnosis).items() if cells}
    clients = [name for name in facts.clients if any(name in cells for cells in shown.values())]
    if not clients:
        return ()
    unit = OutcomeWords.of(facts.record.study).name
    table = Table(
        caption=f"How far apart: discrepancies in {unit} per decision with 95 % intervals",
        headers=("Client", *shown),
        rows=tuple(
            (name, *(cells.get(name, NOT_REPORTED) for cells in shown.values())) for name in clients
        ),
    )
    return (Text(_about_distances(facts, list(shown)), quiet=True), folded(table))


def _columns(facts: JoiningFacts, diagnosis: Diagnosis) -> dict[str, dict[str, str]]:
    """What is known about each client, by column title."""
    spans = {name: Span.of(one.gap) for name, one in diagnosis.discrepancies.items()}
    return {
        "Total variation of contexts, at least": {
            name: _lower_bound(one) for name, one in diagnosis.classifiers.items()
        },
        "Discrepancy": {n: f"{span.number} ({span.interval})" for n, span in spans.items()},
        "Largest score × total variation (U·TV), at most": {
            name: decimal(bound) for name, bound in _by_theorem(facts).items()
        },
    }


def _by_theorem(facts: JoiningFacts) -> dict[str, float]:
    """U·TV, which bounds the discrepancy, for the clients whose TV is known."""
    largest = largest_score(facts.record.study)
    if largest is None:
        return {}
    return {n: largest * one.joint for n, one in facts.shifts.items() if one.joint is not None}


def _lower_bound(classifier: Classifier) -> str:
    bound, error = classifier.total_variation, classifier.standard_error
    if bound is None or error is None or math.isnan(bound):
        return NOT_REPORTED
    return f"{decimal(max(bound, 0.0), 2)} ± {decimal(error, 2)}"


def _about_distances(facts: JoiningFacts, titles: list[str]) -> str:
    said, evaluation = [], facts.record.study.evaluation
    by_fold = " without each fold" if evaluation.is_cross_fitted else ""
    if any("contexts" in title for title in titles):
        said.append(
            "A classifier that separates a client's contexts from the others' gives a lower "
            "bound on how far apart they are, with its standard error; 0 is the same, 1 is "
            "entirely apart."
        )
    if "Discrepancy" in titles:
        said.append(
            "The discrepancy is how much the values of policies at a client differ from "
            f"their values in the mixture. It is measured on {evaluation.rows_valued}, at two "
            f"policies learned to show it{by_fold}. It is how much regret can suffer from shift, "
            "as far as these policies show. An estimate below 0 counts as none."
        )
    if ratios := _ratios(facts):
        ends = (min(ratios), max(ratios))
        least, most = (decimal(ratio, 0 if ratio >= 10 else 1) for ratio in ends)
        times = least if least == most else f"{least} to {most}"
        said.append(
            f"U·TV, which Theorem 2 uses in its place, is {times} times as large: bounds by "
            "total variation include every difference, also those that no decision depends "
            "on."
        )
    return " ".join(said)


def _ratios(facts: JoiningFacts) -> list[float]:
    """U·TV over the measured discrepancy, if both are known and the discrepancy is not tiny."""
    found = facts.record.diagnosis.discrepancies if facts.record.diagnosis else {}
    return [
        bound / found[name].regret_gap
        for name, bound in _by_theorem(facts).items()
        if name in facts.clients and name in found and found[name].is_sure
    ]
