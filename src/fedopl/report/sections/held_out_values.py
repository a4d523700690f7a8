"""What policies are worth: their values beside each other, and paired gains."""

from fedopl.base.labels import GLOBAL
from fedopl.report.explain.in_doubt import folded_if_doubted, verdict_table, verdict_words
from fedopl.report.figures.forest import GAIN_KEYS, Panel, forest
from fedopl.report.moved_by_split import moved_by_split, what_medians_are_of
from fedopl.report.parts import Part, Picture, Section, Table, Text
from fedopl.report.words.numbers import Span, alike, percent, plural
from fedopl.report.words.policy_labels import (
    SO_FAR,
    OutcomeWords,
    gain_over,
    is_arm,
    label,
    opened,
    value_of,
)
from fedopl.results.record import Record
from fedopl.results.spending.budget_words import budget_notes
from fedopl.results.value_tables import LOCAL, LOGGING

_MOST_DRAWN = 30  # policies in a figure
_WORDS = {
    "better": "better",
    "worse": "worse",
    "same": "the same decisions, or nearly",
    "unclear": "no clear difference",
}

_HELD_OUT = "that nothing was learned from"
_CANDIDATES = "(all rows for each candidate; the best one was chosen for each fold by the others)"
_OF_OTHER_ROWS = (
    "(all rows, on the assumption that none of the policies was learned from them: on those, a "
    "policy looks better than it is)"
)


def held_out_values(record: Record) -> Section:
    """The section, or one sentence if nothing is known."""
    parts: tuple[Part, ...]
    if record.gains.rows:
        parts = (*_values(record), *_improvements(record), *_gains(record))
        parts = folded_if_doubted(record, (*parts, *moved_by_split(record)))
    elif record.values.rows:
        parts = (*_values(record), *_improvements(record))
        parts = (Text(f"{_no_rows(record)}."), *folded_if_doubted(record, parts))
    else:
        parts = (Text(f"{_no_rows(record)}, so no value is claimed."),)
    return Section(name="worth", title="What it is worth", parts=parts)


def _no_rows(record: Record) -> str:
    """Why no value of the policy is claimed."""
    plan = record.study.evaluation
    if plan.claims_values:
        return f"No client reported values of {plan.valued('rows')}"
    return "No rows were held out"


def _values(record: Record) -> tuple[Part, ...]:
    outcome = OutcomeWords.of(record.study)
    spans = _labelled(record, {name: value_of(record, name) for name in _ordered(record)})
    level = percent(next(iter(spans.values())).level)
    together = (
        ", which hold for all policies together" if record.study.policy.compares_candidates else ""
    )
    intro = (
        f"Expected {outcome.name} per decision ({outcome.better}), {_estimated_on(record)} The "
        f"lines are {level} intervals{together}. {what_medians_are_of(record)}{_net_of(record)}"
    )
    table = Table(
        caption=f"Expected {outcome.name} per decision ({outcome.better})",
        headers=("Policy", "Estimate", f"{level} interval"),
        rows=tuple((text, span.number, span.interval) for text, span in spans.items()),
    )
    axis = f"{outcome.name} per decision; {outcome.better}"
    return (Text(intro.rstrip()), _picture("values", spans, "Values of the policies", axis), table)


def _estimated_on(record: Record) -> str:
    """The rows that values are of, and how clients are weighed, in words."""
    weighed = "weighed by the agreed mixture of clients."
    if not record.gains.rows:
        used = record.values.of(LOGGING).rows_used
        return f"estimated on {used} rows, and {weighed} {record.which_rows}"
    held_out = f"{record.gains.over(LOGGING).rows_used} rows"
    if n_groups := record.values.groups().get(GLOBAL):
        held_out += f" in {plural(n_groups, 'group')}"
    is_way = record.values_way_of_learning
    if record.valued_on_all:
        alike = f" The learned policy is valued as {record.learned_alike}." * is_way
        return f"{weighed} {record.which_rows} Of held-out rows, {held_out} were used.{alike}"
    where = f"({record.learned_alike})" if is_way else _HELD_OUT
    if is_way and record.study.policy.compares_candidates:
        where = _CANDIDATES
    if record.study.evaluates and record.study.evaluation.is_cross_fitted:
        where = _OF_OTHER_ROWS
    return f"estimated on {held_out} {where}, and {weighed}"


def _net_of(record: Record) -> str:
    """Which costs are part of values, and which policies exceed the budget, in words."""
    costs = record.study.costs
    said = f" Of costs, {costs.in_words} per decision." if costs and costs.are_net else ""
    return said + "".join(f" {note}" for note in budget_notes(record))


def _improvements(record: Record) -> tuple[Part, ...]:
    """Every policy against what was done, which is the basis of the recommendation."""
    rows = {row.policy: row for row in record.improvements.rows if row.client == GLOBAL}
    found = {name: Span.of(row.estimate, row.level) for name, row in rows.items()}
    spans = _labelled(record, {name: found.get(name) for name in _ordered(record)})
    unit = OutcomeWords.of(record.study).name
    level = percent(next(iter(spans.values())).level)
    intro = (
        f"What each policy gains over {SO_FAR}, decision by decision on the same rows. The "
        f"{level} intervals hold for all {len(spans)} policies together, with 95 %"
    )
    may_use = ": so the recommendation may use any of them that lies above zero"
    intro += f"{may_use * bool(record.gains)}."
    caption = f"Gain over {SO_FAR} in {unit} per decision (positive is better)"
    headers = ("Policy", "Gain", f"{level} interval", "In words")
    return (Text(intro), verdict_table(caption, headers, spans, verdict_words(record, _WORDS)))


def _gains(record: Record) -> tuple[Part, ...]:
    unit, what = OutcomeWords.of(record.study).name, label(record.study, record.valued_as)
    others = _ordered(record)
    spans = _labelled(record, {name: gain_over(record, name) for name in others})
    intro = (
        f"What {what} gains over each of the others, decision by decision on the same "
        f"{'held-out ' * bool(record.valued_on_all)}rows: that is more precise than comparing the "
        "lines above. Positive is better."
    )
    caption = f"Gain of {what} in {unit} per decision (positive is better)"
    headers = ("Gain over", "Estimate", "95 % interval", "In words")
    table = verdict_table(caption, headers, spans, verdict_words(record, _WORDS))
    axis = f"gain in {unit} per decision; right of the line is better"
    picture = _picture("gains", spans, f"Gains of {what} over each alternative", axis)
    return (Text(intro), picture, table)


def _labelled(record: Record, found: dict[str, Span | None]) -> dict[str, Span]:
    """Reported spans by policy label, all with the same number of decimals."""
    known = {opened(label(record.study, name)): span for name, span in found.items() if span}
    return dict(zip(known, alike(list(known.values())), strict=True))


def _picture(name: str, spans: dict[str, Span], what: str, axis: str) -> Picture:
    drawn, is_gain = dict(list(spans.items())[:_MOST_DRAWN]), name == "gains"
    panel = Panel(title="", spans=list(drawn.values()))
    words = "; ".join(f"{text}: {span}" for text, span in list(spans.items())[:5])
    left_out = f" The first {_MOST_DRAWN} are drawn." if len(spans) > _MOST_DRAWN else ""
    return Picture(
        name=name,
        drawing=forest(name, list(drawn), [panel], axis, zero=is_gain),
        label=f"{what}, with intervals. {words}.",
        caption=f"{what}, with intervals.{left_out}",
        keys=GAIN_KEYS if is_gain else (),
    )


def _ordered(record: Record) -> list[str]:
    """The chosen policy first, then other policies, constant arms, the past, and local policies."""
    names = list(dict.fromkeys(row.policy for row in record.values.rows))
    # The past and local policies are last; constant arms sort behind other policies.
    last = [name for name in (LOGGING, LOCAL) if name in names]
    others = [name for name in names if name not in (record.chosen, *last)]
    others.sort(key=lambda name: is_arm(record.study, name))
    return [*(name for name in names if name == record.chosen), *others, *last]
