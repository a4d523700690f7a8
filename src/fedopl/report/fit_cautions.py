"""How well models fit, in a table, and cautions about values that richer models would move."""

from collections.abc import Callable, Iterator, Sized

from fedopl.messages.evaluation.interactions_left import MOST_IN_TRIPLES
from fedopl.report.parts import Caution, Heading, Part, Table, Text
from fedopl.report.words.numbers import decimal, listed, percent, plain, plural
from fedopl.report.words.policy_labels import OutcomeWords, valued_clients
from fedopl.results.left_interactions import LeftInteraction, left_interactions
from fedopl.results.model_doubts import (
    ActionFit,
    SingleRow,
    ValueShift,
    action_fits,
    doubted,
    doubted_clients,
    single_rows,
    trimming_matters,
)
from fedopl.results.record import Record

REMEDY = (
    "Give the study the features that decided what was done, also as squares, steps or products "
    "where these matter, or the propensities, if they are known (nuisances.propensity), and run "
    "it again."
)


def fit_cautions(record: Record) -> Iterator[Caution]:
    """Cautions about models, the most serious first."""
    yield from _too_simple(record)
    yield from _act_together(record)
    yield from _unbalanced(record)
    yield from _by_few_rows(record)


def _too_simple(record: Record) -> Iterator[Caution]:
    name = OutcomeWords.of(record.study).name
    found = doubted(record)
    if found:
        worst = max(found, key=lambda one: abs(one.moved.value))
        yield Caution(
            "The models are too simple",
            f"Richer outcome models move what '{worst.action}' is worth to everybody by "
            f"{shift_in_words(worst.moved)} {name}, which is more than "
            f"chance{_and_others(found)}: neither outcome models nor propensities fit.",
            f"Values and gains are wrong by about as much, and their intervals do not say so. "
            f"{REMEDY}",
        )
        return
    by_client = doubted_clients(record)
    if by_client:
        where = [f"{client} ({_names(fits)})" for client, fits in by_client.items()]
        yield Caution(
            "The models are too simple for some clients",
            f"Richer outcome models surely move what actions are worth at {listed(where)}.",
            f"Results for these clients are wrong by more than their intervals say. {REMEDY}",
        )


def _and_others(found: Sized) -> str:
    """A phrase that more actions are like the worst one."""
    if len(found) == 1:
        return ""
    return f" (and the same for {plural(len(found) - 1, 'other action')})"


def _names(fits: list[ActionFit]) -> str:
    return listed([f"'{one.action}'" for one in fits], 3)


def _act_together(record: Record) -> Iterator[Caution]:
    """Features whose product is left in weights and residuals alike."""
    found = left_interactions(record)
    if not found:
        return
    first, name = found[0], OutcomeWords.of(record.study).name
    size = f"by about {plain(abs(first.too_high), 2)} {name} by these features alone"
    stated = bool(record.values.rows)
    values = (
        "Values and gains may be off by more than their intervals say"
        if stated
        else ("What the policy was learned from may be off")
    )
    yield Caution(
        "Features act together in ways that the models miss",
        f"Beyond what each does by itself, {listed(list(first.features))} together are left in "
        f"both models of '{first.action}': in the residuals of outcome models, and in who got it, "
        f"weighted by how unlikely that was{_and_products(found)}. Either would be harmless alone, "
        "and both at once are hardly chance.",
        f"{values}: what '{first.action}' is worth to everybody is, {size}. {_remedy(first)}",
    )


def _and_products(found: list[LeftInteraction]) -> str:
    return f" (and so are {plural(len(found) - 1, 'other product')})" if len(found) > 1 else ""


def _remedy(found: LeftInteraction) -> str:
    """What may bring the models to see it."""
    basis = (
        "a [basis] that has their product (products)"
        if len(found.features) == 2
        else "a [basis] with waves, as products are of two features"
    )
    return (
        f'Give the study {basis}, trees (nuisances.outcome = "boosting", nuisances.propensity = '
        '"boosting"), or the propensities, if they are known, and run it again; a policy of '
        'kind = "neural" may follow such effects, but does not put right what is said of them.'
    )


def _unbalanced(record: Record) -> Iterator[Caution]:
    found = [one for one in action_fits(record) if one.is_unbalanced]
    if found:
        worst = max(found, key=lambda one: abs(one.imbalance))
        yield Caution(
            "Propensities do not balance",
            f"Weighted by how unlikely that was, those who got '{worst.action}' still differ from "
            f"everybody in {worst.feature}, by {abs(worst.imbalance):.2f} standard deviations"
            f"{_and_others(found)}.",
            f"What was done depends on more than the propensity model has. {REMEDY}",
        )


def _by_few_rows(record: Record) -> Iterator[Caution]:
    """Values that single rows carry: of all clients together, else of clients by themselves."""
    yield from _carried(record)
    yield from _moved_by_one_row(record)


def _carried(record: Record) -> Iterator[Caution]:
    less_certain = (
        "are less certain than their intervals say. Look at what a clip changes "
        "(nuisances.clip = 0.05)."
    )
    heavy = [one for one in single_rows(record).values() if one.is_heavy]
    if heavy:
        worst = max(heavy, key=lambda one: one.weight)
        trimmed = {one.action: one.trimmed for one in trimming_matters(record)}
        effect = trimmed.get(worst.action)
        beside = f" Trimming weights moves it by {shift_in_words(effect)}." if effect else ""
        yield Caution(
            "A few weights carry a value",
            f"One row has {percent(worst.weight)} of all weight behind "
            f"'{worst.action}'{_and_others(heavy)}.{beside}",
            f"Such values {less_certain}",
        )
    elif where := _at_clients(record, lambda one: one.is_heavy):
        yield Caution(
            "A few weights carry values of some clients",
            f"One row has more than a sixteenth of all weight behind an action at {listed(where)}.",
            f"Results for these clients {less_certain}",
        )


def _moved_by_one_row(record: Record) -> Iterator[Caution]:
    far = "by more than half of its standard error"
    remedy = (
        "run `fedopl check`, which names columns with values far outside the rest and codes such "
        "as −999."
    )
    pulled = [one for one in single_rows(record).values() if one.moves_it]
    if pulled:
        worst = max(pulled, key=lambda one: one.influence)
        yield Caution(
            "One row moves the result",
            f"Without a single row, what '{worst.action}' is worth moves {far}"
            f"{_and_others(pulled)}.",
            f"Let the clients {remedy}",
        )
    elif where := _at_clients(record, lambda one: one.moves_it):
        yield Caution(
            "One row moves results of some clients",
            f"Without a single row, what an action is worth moves {far} at {listed(where)}.",
            f"Let these clients {remedy}",
        )


def _at_clients(record: Record, is_so: Callable[[SingleRow], bool]) -> list[str]:
    """Clients that the report has values of, with their actions of which this is so."""
    found = []
    for client in valued_clients(record):
        rows = single_rows(record, client) if client in record.fitted else {}
        if actions := [f"'{one.action}'" for one in rows.values() if is_so(one)]:
            found.append(f"{client} ({listed(actions, 3)})")
    return found


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
            (one.action, listed(list(one.features)), decimal(one.strength, 1), size)
            for one in found
            for size in [plain(abs(one.too_high), 2)]
        ),
        text_columns=(1,),
    )
    return (Text(looked_at), table)


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
