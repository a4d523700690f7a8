"""How much a result depends on the split of the rows: each split's gain, and all combined."""

import statistics
from collections import Counter
from dataclasses import dataclass

from fedopl.base.labels import GLOBAL
from fedopl.report.explain.in_doubt import verdict_words
from fedopl.report.figures.forest import GAIN_KEYS, Panel, forest
from fedopl.report.parts import Heading, Part, Picture, Table, Text, folded_if_long
from fedopl.report.words.numbers import Span, alike, decimal, listed, percent, plural
from fedopl.report.words.policy_labels import OutcomeWords, label
from fedopl.results.record import Record
from fedopl.results.value_tables import LOGGING, Row


@dataclass(frozen=True, eq=False, kw_only=True)
class Movement:
    """The learned policy's gain over another: under each split alone, and the median."""

    against: str
    alone: tuple[Row | None, ...]  # None for a split without this gain
    together: Row

    @property
    def gains(self) -> tuple[float, ...]:
        """The estimates of the splits that have one."""
        return tuple(row.estimate.value for row in self.alone if row)

    @property
    def spread(self) -> float:
        """The standard deviation of the estimates over splits; 0 with one split."""
        return statistics.stdev(self.gains) if len(self.gains) > 1 else 0.0

    @property
    def error_alone(self) -> float:
        """The median over splits of the standard error from one split alone."""
        return statistics.median(row.estimate.standard_error for row in self.alone if row)

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
    past = (record.chosen, GLOBAL)
    arm = (record.valued_arm, GLOBAL)
    found = (
        (LOGGING, record.improvements, [one.improvements for one in record.splits], past),
        (arm[0], record.gains, [one.gains for one in record.splits], arm),
    )
    return tuple(
        Movement(
            against=against,
            alone=tuple(table.by_cell().get(cell) for table in tables),
            together=together.by_cell()[cell],
        )
        for against, together, tables, cell in found
        if cell in together.by_cell()
    )


_MOST_DRAWN = 25  # splits in the figure
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
    return (Heading(_TITLE), said, _picture(record, found), _table(record, found))


def _picture(record: Record, found: tuple[Movement, ...]) -> Picture:
    n_drawn = min(len(record.splits), _MOST_DRAWN)
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
    rows = [*movement.alone, movement.together]
    known = iter(alike([Span.of(row.estimate, row.level) for row in rows if row]))
    return [next(known) if row else None for row in rows]


def _table(record: Record, found: tuple[Movement, ...]) -> Part:
    headers, columns = ["Split"], []
    says = verdict_words(record, FOUND_ALONE)
    for movement in found:
        level = percent(movement.together.level)
        what = label(record.study, movement.against)
        headers += [f"Gain over {what} ({level} interval)", "Alone it says"]
        rows = [*movement.alone, movement.together]
        columns.append(
            [
                (f"{span.number} ({span.interval})", says[decided(row)])
                if span and row
                else ("–", "nothing")
                for span, row in zip(_spans(movement), rows, strict=True)
            ]
        )
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


def each_split(record: Record) -> str:
    """', in each of 5 splits', or empty with a single split."""
    n_splits = record.study.evaluation.splits
    return f", in each of {n_splits} splits" if n_splits > 1 else ""


def what_medians_are_of(record: Record) -> str:
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
    rows = [row for row in (*movement.alone, movement.together) if row]
    places = alike([Span.of(row.estimate, row.level) for row in rows])[0].decimals
    least, most, spread, error, stated = (
        decimal(number, places)
        for number in (
            min(movement.gains),
            max(movement.gains),
            movement.spread,
            movement.error_alone,
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
