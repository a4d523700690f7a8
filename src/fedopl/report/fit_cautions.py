"""Cautions about models: values that richer models would move, or that depend on a few rows."""

from collections.abc import Callable, Iterator, Sized

from fedopl.report.explain.fit_words import shift_in_words
from fedopl.report.parts import Caution
from fedopl.report.words.numbers import listed, percent, plain, plural
from fedopl.report.words.policy_labels import OutcomeWords, valued_clients
from fedopl.results.left_interactions import LeftInteraction, left_interactions
from fedopl.results.model_doubts import (
    ActionFit,
    action_fits,
    doubted,
    doubted_clients,
    trimming_matters,
)
from fedopl.results.record import Record
from fedopl.results.single_rows import SingleRow, single_rows, single_rows_at

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
        rows = single_rows_at(record, client) if client in record.fitted else {}
        if actions := [f"'{one.action}'" for one in rows.values() if is_so(one)]:
            found.append(f"{client} ({listed(actions, 3)})")
    return found
