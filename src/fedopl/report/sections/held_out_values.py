"""What it is worth: values of policies beside each other, and paired gains."""

from fedopl.base.labels import GLOBAL
from fedopl.report.figures.forest import GAIN_KEYS, Panel, gains_forest, values_forest
from fedopl.report.parts import Part, Picture, Section, Table, Text
from fedopl.report.words.numbers import Span, alike, count, percent
from fedopl.report.words.policy_labels import (
    OutcomeWords,
    gain_over,
    is_arm,
    label,
    opened,
    value_of,
    verdict,
)
from fedopl.results.record import Record

_MOST_DRAWN = 30  # policies in a figure
_WORDS = {
    "better": "better",
    "worse": "worse",
    "same": "the same decisions, or nearly",
    "unclear": "no clear difference",
}


def held_out_values(record: Record) -> Section:
    """The section, or one sentence where nothing is known."""
    parts: tuple[Part, ...] = (_nothing(record),)
    if record.values.rows:
        parts = (*_values(record), *_gains(record))
    return Section(name="worth", title="What it is worth", parts=parts)


def _nothing(record: Record) -> Text:
    if not record.study.evaluation.share:
        return Text("No rows were held out, so no value is claimed.")
    return Text("No client reported values of held-out rows, so no value is claimed.")


def _values(record: Record) -> tuple[Part, ...]:
    outcome, names = OutcomeWords.of(record.study), _ordered(record)
    spans = _alike({name: span for name in names if (span := value_of(record, name))})
    labels = [opened(label(record.study, name)) for name in spans]
    held_out = count(record.values.of(record.chosen, GLOBAL).n_rows)
    level = percent(next(iter(spans.values())).level)
    together = (
        ", which hold for all policies together" if record.study.policy.compares_candidates else ""
    )
    intro = (
        f"Expected {outcome.name} per decision ({outcome.better}), estimated on {held_out} rows "
        "that nothing was learned from, and weighed by the agreed mixture of clients. The lines "
        f"are {level} intervals{together}."
    )
    drawn = list(spans)[:_MOST_DRAWN]
    svg = values_forest(
        "values",
        labels[: len(drawn)],
        [spans[name] for name in drawn],
        f"{outcome.name} per decision; {outcome.better}",
    )
    rows = [
        (text, span.number, span.interval)
        for text, span in zip(labels, spans.values(), strict=True)
    ]
    table = Table(
        caption=f"Expected {outcome.name} per decision ({outcome.better})",
        headers=("Policy", "Estimate", f"{level} interval"),
        rows=tuple(rows),
    )
    shown = _picture("values", svg, "Values of the policies", list(spans.values()), labels)
    return (Text(intro), shown, table)


def _gains(record: Record) -> tuple[Part, ...]:
    outcome = OutcomeWords.of(record.study)
    names = [name for name in _ordered(record) if name != record.chosen]
    spans = _alike({name: span for name in names if (span := gain_over(record, name))})
    labels = [opened(label(record.study, name)) for name in spans]
    what = label(record.study, record.chosen)
    intro = Text(
        f"What {what} gains over each of the others, decision by decision on the same rows: "
        "that is more precise than comparing the lines above. Positive is better."
    )
    drawn = list(spans.values())[:_MOST_DRAWN]
    svg = gains_forest(
        "gains",
        labels[: len(drawn)],
        [Panel(title="", spans=list(drawn))],
        f"gain in {outcome.name} per decision; right of the line is better",
    )
    rows = [
        (text, span.number, span.interval, _WORDS[verdict(span)])
        for text, span in zip(labels, spans.values(), strict=True)
    ]
    table = Table(
        caption=f"Gain of {what} in {outcome.name} per decision (positive is better)",
        headers=("Gain over", "Estimate", "95 % interval", "In words"),
        rows=tuple(rows),
        text_columns=(3,),
    )
    picture = _picture(
        "gains", svg, f"Gains of {what} over each alternative", list(spans.values()), labels
    )
    return (intro, picture, table)


def _picture(name: str, svg: str, what: str, spans: list[Span], labels: list[str]) -> Picture:
    words = "; ".join(f"{text}: {span}" for text, span in zip(labels[:5], spans[:5], strict=True))
    left_out = f" The first {_MOST_DRAWN} are drawn." if len(spans) > _MOST_DRAWN else ""
    return Picture(
        name=name,
        svg=svg,
        label=f"{what}, with intervals. {words}.",
        caption=f"{what}, with intervals.{left_out}",
        keys=GAIN_KEYS if name == "gains" else (),
    )


def _alike(spans: dict[str, Span]) -> dict[str, Span]:
    return dict(zip(spans, alike(list(spans.values())), strict=True))


def _ordered(record: Record) -> list[str]:
    """The chosen one first, then other policies, constant arms, the past, and local policies."""
    names = list(dict.fromkeys(row.policy for row in record.values.rows))
    own = [n for n in names[:-2] if n != record.chosen and not is_arm(record.study, n)]
    arms = [n for n in names[:-2] if n != record.chosen and is_arm(record.study, n)]
    return [record.chosen, *own, *arms, *names[-2:]]
