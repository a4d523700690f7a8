"""What policies are worth: their values, paired gains, and how far another split moves them."""

import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from fedopl.base.labels import GLOBAL
from fedopl.report.explain.in_doubt import folded_if_doubted, verdict_table, verdict_words
from fedopl.report.figures.forest import GAIN_KEYS, Panel, forest
from fedopl.report.parts import Heading, Part, Picture, Section, Table, Text, folded_if_long
from fedopl.report.words.numbers import Span, alike, decimal, listed, percent, plural
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
from fedopl.results.value_tables import LOCAL, LOGGING, Row

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
    plan, title = record.study.evaluation, "What it is worth"
    why = "No rows were held out"
    if plan.claims_values:
        why = f"No client reported values of {plan.valued('rows')}"
    if not record.gains.rows and not record.values.rows:
        parts: tuple[Part, ...] = (Text(f"{why}, so no value is claimed."),)
        return Section(name="worth", title=title, parts=parts)
    parts = (*_values(record), *_improvements(record))
    if record.gains.rows:
        parts = (*parts, *_gains(record), *moved_by_split(record))
    said = () if record.gains.rows else (Text(f"{why}."),)
    return Section(name="worth", title=title, parts=(*said, *folded_if_doubted(record, parts)))


def _values(record: Record) -> tuple[Part, ...]:
    outcome = OutcomeWords.of(record.study)
    spans = _labelled(record, lambda name: value_of(record, name))
    level = percent(next(iter(spans.values())).level)
    together = ", which hold for all policies together" * record.study.policy.compares_candidates
    costs = record.study.costs
    net_of = f" Of costs, {costs.in_words} per decision." if costs and costs.are_net else ""
    notes = "".join(f" {note}" for note in budget_notes(record))
    intro = (
        f"Expected {outcome.name} per decision ({outcome.better}), {_estimated_on(record)} The "
        f"lines are {level} intervals{together}. {_medians_of(record)}{net_of}{notes}"
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


def _improvements(record: Record) -> tuple[Part, ...]:
    """Every policy against what was done, which is the basis of the recommendation."""
    rows = [row for row in record.improvements.rows if row.client == GLOBAL]
    spans = _labelled(record, {r.policy: Span.of(r.estimate, r.level) for r in rows}.get)
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
    spans = _labelled(record, lambda name: gain_over(record, name))
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


def _labelled(record: Record, span_of: Callable[[str], Span | None]) -> dict[str, Span]:
    """Reported spans by policy label, all with the same number of decimals.

    The chosen policy comes first, then other policies, constant arms, the past, local policies.
    """
    places = {LOGGING: 3, LOCAL: 4, record.chosen: 0}
    names = dict.fromkeys(row.policy for row in record.values.rows)
    ordered = sorted(names, key=lambda name: places.get(name, 1 + is_arm(record.study, name)))
    spans = {opened(label(record.study, name)): span_of(name) for name in ordered}
    known = {text: span for text, span in spans.items() if span}
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Movement:
    """The learned policy's gain over another: under each split alone, and the median."""

    against: str
    alone: tuple[Row | None, ...]  # None for a split without this gain
    together: Row

    @property
    def rows(self) -> tuple[Row | None, ...]:
        """Those of each split, then the median."""
        return *self.alone, self.together

    @property
    def gains(self) -> tuple[float, ...]:
        """The estimates of the splits that have one."""
        return tuple(row.estimate.value for row in self.alone if row)

    @property
    def spread(self) -> float:
        """The standard deviation of the estimates over splits; 0 with one split."""
        return statistics.stdev(self.gains) if len(self.gains) > 1 else 0.0

    @property
    def verdicts(self) -> Counter[str]:
        """How many splits alone would have given each verdict."""
        return Counter(decided(row) for row in self.alone if row)


def decided(row: Row) -> str:
    """'better', 'worse' or 'unclear', by the interval at the row's own level."""
    low, high = row.interval
    if low > 0:
        return "better"
    return "worse" if high < 0 else "unclear"


def movements(record: Record) -> tuple[Movement, ...]:
    """The gains over what was done and over the best arm; recommendations use the first.

    Empty if rows were split only once: then the effect of the split is not known.
    """
    if not record.splits:
        return ()
    arm, splits = record.valued_arm, record.splits
    found = (
        (LOGGING, record.chosen, record.improvements, [one.improvements for one in splits]),
        (arm, arm, record.gains, [one.gains for one in splits]),
    )
    return tuple(
        Movement(
            against=against,
            alone=tuple(table.by_cell().get((policy, GLOBAL)) for table in tables),
            together=together.by_cell()[policy, GLOBAL],
        )
        for against, policy, together, tables in found
        if (policy, GLOBAL) in together.by_cell()
    )


_MOST_SPLITS = 25  # splits in the figure
_TITLE = "How much the split moves the result"
_ONE_SPLIT = (
    "The rows were split once, by the study's seed and secrets of the clients. Under another "
    "split all numbers would be somewhat different; one split cannot show how much. With "
    "splits = 5 under [evaluation] the study is repeated under other splits, and this page "
    "shows the differences."
)


def moved_by_split(record: Record) -> tuple[Part, ...]:
    """The paragraph, figure and table; with a single split, how to repeat the split."""
    found = movements(record)
    if not found:
        repeatable = not (record.splits or record.study.privacy)
        return (Text(_ONE_SPLIT, quiet=True),) if repeatable else ()
    said = Text(" ".join(moved_in_words(record)))
    return (Heading(_TITLE), said, _splits_drawn(record, found), _splits_table(record, found))


def _splits_drawn(record: Record, found: tuple[Movement, ...]) -> Picture:
    n_drawn = min(len(record.splits), _MOST_SPLITS)
    panels = [
        Panel(
            title=f"over {label(record.study, movement.against)}",
            spans=[*_spans(movement)[:n_drawn], _spans(movement)[-1]],
        )
        for movement in found
    ]
    labels = [*(f"split {place + 1}" for place in range(n_drawn)), "together"]
    unit = OutcomeWords.of(record.study).name
    left_out = f" The first {n_drawn} splits are drawn." if n_drawn < len(record.splits) else ""
    caption = f"Gains of {label(record.study, record.chosen)} under each split, with intervals."
    return Picture(
        name="splits",
        drawing=forest("splits", labels, panels, f"gain in {unit} per decision", zero=True),
        label=f"{caption} {' '.join(moved_in_words(record))}",
        caption=f"{caption}{left_out}",
        keys=GAIN_KEYS,
    )


def _spans(movement: Movement) -> list[Span | None]:
    """Each split's estimate, then the combined one, all with the same number of decimals."""
    known = iter(alike([Span.of(row.estimate, row.level) for row in movement.rows if row]))
    return [next(known) if row else None for row in movement.rows]


def _splits_table(record: Record, found: tuple[Movement, ...]) -> Part:
    headers, columns = ["Split"], []
    says = verdict_words(record, FOUND_ALONE)
    for movement in found:
        level = percent(movement.together.level)
        what = label(record.study, movement.against)
        headers += [f"Gain over {what} ({level} interval)", "Alone it says"]
        cells = [
            (f"{span.number} ({span.interval})", says[decided(row)])
            if span and row
            else ("–", "nothing")
            for span, row in zip(_spans(movement), movement.rows, strict=True)
        ]
        columns.append(cells)
    names = [*(f"{place + 1}" for place in range(len(record.splits))), "together"]
    table = Table(
        caption="What each split says, and the median with an error that includes how far splits "
        "differ",
        headers=tuple(headers),
        rows=tuple(
            (name, *(text for column in columns for text in column[place]))
            for place, name in enumerate(names)
        ),
        text_columns=tuple(range(2, len(headers), 2)),
    )
    return folded_if_long(table, summary="All splits")


FOUND_ALONE = {"better": "better", "unclear": "no clear difference", "worse": "worse"}


def _medians_of(record: Record) -> str:
    """What values are medians of, if rows were split several times; otherwise empty."""
    n_splits = record.study.evaluation.splits
    if n_splits == 1:
        return ""
    return (
        f"All of this was done under {n_splits} splits of the same rows, and the numbers are "
        "medians over them. They are values of the way of learning. The policy itself, and what "
        "describes it, are those of the first split."
    )


def moved_in_words(record: Record) -> list[str]:
    """A sentence for each comparison; empty if rows were split once."""
    return [_sentence(record, movement) for movement in movements(record)]


def _sentence(record: Record, movement: Movement) -> str:
    """How far the estimates lie apart, beside the error; and differing conclusions, if any."""
    if len(movement.gains) < 2:
        return ""
    places = next(span.decimals for span in _spans(movement) if span)
    error_alone = statistics.median(row.estimate.standard_error for row in movement.alone if row)
    least, most, spread, error, stated = (
        decimal(number, places)
        for number in (
            min(movement.gains),
            max(movement.gains),
            movement.spread,
            error_alone,
            movement.together.estimate.standard_error,
        )
    )
    moved = (
        f"The gain over {label(record.study, movement.against)} lies between {least} and {most}, "
        f"with a standard deviation of {spread} from split to split; one split states a standard "
        f"error of {error}, all together {stated}."
    )
    return moved if record.in_doubt else f"{moved} {_said_alone(movement)}"


def _said_alone(movement: Movement) -> str:
    verdicts = movement.verdicts
    counted = [(verdicts[word], said) for word, said in FOUND_ALONE.items() if verdicts[word]]
    (n_first, first), *others = counted
    alone = listed([f"'{first}'", *(f"{n} '{said}'" for n, said in others)])
    return (
        f"By itself, {n_first} of {plural(len(movement.gains), 'split')} would have said {alone}; "
        f"together they say '{FOUND_ALONE[decided(movement.together)]}'."
    )
