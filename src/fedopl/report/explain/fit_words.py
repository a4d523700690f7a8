"""A table on model fit: changes under richer models, balance, and the influence of single rows."""

from fedopl.messages.evaluation.interactions_left import MOST_IN_TRIPLES
from fedopl.report.parts import Heading, Part, Table, Text
from fedopl.report.words.numbers import decimal, listed, percent, plain
from fedopl.results.left_interactions import LeftInteraction, left_interactions
from fedopl.results.model_doubts import ActionFit, ValueShift, action_fits
from fedopl.results.record import Record
from fedopl.results.single_rows import SingleRow, single_rows


def fit_parts(record: Record) -> tuple[Part, ...]:
    """The heading, the explanation and the table; empty if no client reported."""
    fits = action_fits(record)
    if not fits:
        return ()
    carried = single_rows(record)
    table = Table(
        caption="How well models fit, by action, in the mixture of the clients that reported",
        headers=(
            "Action",
            "Richer models move its value by",
            "They explain, of what is left",
            "Trimming moves it by",
            "Worst imbalance",
            "Of",
            "Largest weight",
            "Largest influence",
        ),
        rows=tuple(_row(one, carried[one.action]) for one in fits),
        text_columns=(5,),
    )
    return (Heading("Do the models fit?"), Text(_INTRO), table, *_together(record))


_INTRO = (
    "Values are right if either outcome models or propensities are right. Each client tried "
    "a richer outcome model on its training rows. If propensities are right, that moves the "
    "value of giving an action to everybody by no more than chance (± one standard error). "
    "Those who got an action, weighted by how unlikely that was, should be like everybody. "
    "The imbalance says how far they are not, in standard deviations. Trimming raises "
    "propensities below 5 % to 5 %. The largest weight is the share that one row has of all "
    "weight. The largest influence is how far one row moves the value, in standard errors. "
    "Both are of all clients together."
)


def _together(record: Record) -> tuple[Part, ...]:
    """What features do together in what both models leave; nothing where no client told."""
    if not record.interactions:
        return ()
    sizes = "two" if record.study.n_features > MOST_IN_TRIPLES else "two and of three"
    looked_at = (
        f"Products of {sizes} features were looked at, too: whether those who got an action differ "
        "from everybody in what the features do together, and whether outcome models miss just "
        "that. Where only one of both is so, values are right all the same."
    )
    found = left_interactions(record)
    if not found:
        return (Text(f"{looked_at} Both at once are so of none, beyond chance and trifles."),)
    table = Table(
        caption="What features do together that both models miss, the surest first",
        headers=(
            "Action",
            "Features",
            "Standard deviations of chance",
            "Its value is off by about",
        ),
        rows=tuple(
            (one.action, listed(list(one.features)), decimal(one.strength, 1), _size(one))
            for one in found
        ),
        text_columns=(1,),
    )
    return (Text(looked_at), table)


def _size(one: LeftInteraction) -> str:
    return plain(abs(one.too_high), 2)


def _row(one: ActionFit, carried: SingleRow) -> tuple[str, ...]:
    return (
        one.action,
        shift_in_words(one.moved),
        percent(max(one.explained, 0.0)),
        shift_in_words(one.trimmed),
        f"{decimal(one.imbalance, 2)}{' ✗' * one.is_unbalanced}",
        one.feature,
        percent(carried.weight),
        plain(carried.influence, 2),
    )


def shift_in_words(shift: ValueShift) -> str:
    """The shift of a value and its standard error, in words."""
    if not shift.standard_error:
        return "nothing" if not shift.value else plain(shift.value, 3)
    return f"{plain(shift.value, 2)} ± {plain(shift.standard_error, 2)}"
