"""How much the split moves the result, in sentences shared by page and terminal."""

from fedopl.analysis.split_movement import Movement, decided, movements
from fedopl.report.words.numbers import Span, alike, decimal, listed, plural
from fedopl.report.words.policy_labels import label
from fedopl.results.record import Record

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
