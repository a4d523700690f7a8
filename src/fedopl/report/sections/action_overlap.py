"""Does the past support it? How often actions were taken, how well models fit, and cautions."""

from collections.abc import Callable, Iterator, Sized
from itertools import groupby

from fedopl.messages.evaluation.interactions_left import MOST_IN_TRIPLES
from fedopl.report.explain.learning_words import limited_words
from fedopl.report.explain.support_levels import (
    FAIR,
    THIN,
    ActionSupport,
    chance_names,
    hardly_words,
    rare_chance,
    supports,
)
from fedopl.report.figures.shares import Shares, strips
from fedopl.report.parts import (
    Caution,
    Heading,
    Part,
    Picture,
    Section,
    Table,
    Text,
    folded_if_long,
    texts,
)
from fedopl.report.words.numbers import count, decimal, listed, percent, plain, plural
from fedopl.report.words.policy_labels import (
    SUPPORT_OF_MEMBERS,
    OutcomeWords,
    of_regions,
    valued_clients,
)
from fedopl.results.left_interactions import LeftInteraction, left_interactions
from fedopl.results.model_doubts import (
    SingleRow,
    ValueShift,
    action_fits,
    doubted,
    doubted_clients,
    single_rows,
    trimming_matters,
)
from fedopl.results.record import Record

_MOST_DRAWN = 24  # strips in the figure
_EFFECTIVE = (
    "What an action would have done can only be learned from people who got it. Those who got it "
    "although it was unlikely represent many who did not. They get large weights, which makes "
    "estimates imprecise. Effective rows say how many rows of ordinary weight an action's estimate "
    f"is worth: {FAIR} or more are good, fewer than {THIN} are thin."
)


def action_overlap(record: Record) -> Section:
    """The section, or one sentence if no client answered."""
    found = supports(record)
    parts: tuple[Part, ...] = (Text("The clients did not report how likely actions were."),)
    if found:
        said = texts(
            _EFFECTIVE,
            _words(found),
            of_regions(record, SUPPORT_OF_MEMBERS),
            limited_words(record),
            hardly_words(record),
        )
        table = _table(found, rare_chance(record.study.n_actions))
        parts = (*said, _picture(found), table)
    parts += fit_parts(record)
    return Section(name="overlap", title="Does the past support it?", parts=parts)


def _words(found: list[ActionSupport]) -> str:
    thin = [f"'{s.action}' at {s.client}" for s in found if s.effective_rows < THIN]
    least = min(found, key=lambda s: s.effective_rows)
    if not thin:
        return (
            f"Every action is supported at every client that reported. The weakest is "
            f"'{least.action}' at {least.client}, with {count(least.effective_rows)} effective "
            "rows."
        )
    how_many = plural(len(thin), "combination of action and client is", "combinations are")
    return (
        f"{how_many} thin: {listed(thin)}. There the estimates rest on models and on other clients."
    )


def _picture(found: list[ActionSupport]) -> Picture:
    weakest = sorted(found, key=lambda s: s.effective_rows)[:_MOST_DRAWN]
    # Back in the order of clients, so that each client has one heading.
    drawn = [s for s in found if s in weakest]
    items = [
        Shares(
            label=s.action,
            shares=s.chances,
            note=count(s.effective_rows),
            heading="" if place else client,
        )
        for client, own in groupby(drawn, lambda s: s.client)
        for place, s in enumerate(own)
    ]
    axis = "% of rows, by how likely the action was, in %"
    drawing = strips("overlap", items, chance_names(), axis, "eff. rows")
    caption = (
        "How likely each action was for a client's rows, in per cent of the rows (darker is more), "
        "and its effective rows."
    )
    if len(drawn) < len(found):
        caption += f" Drawn are the {len(drawn)} of {len(found)} with the fewest effective rows."
    return Picture(
        name="overlap", drawing=drawing, label=f"{caption} {_words(found)}", caption=caption
    )


def _table(found: list[ActionSupport], rare: float | None) -> Part:
    cuts = [rare] if rare else []
    below = [f"Chance below {percent(cut)}" for cut in cuts]
    table = Table(
        caption="Support of each action at each client",
        headers=("Client", "Action", "Took it", "Effective rows", *below, "In words"),
        rows=tuple(
            (
                s.client,
                s.action,
                count(s.taken),
                count(s.effective_rows),
                *(percent(s.share_below(cut)) for cut in cuts),
                s.word,
            )
            for s in found
        ),
        text_columns=(1, 4 + len(below)),
    )
    return folded_if_long(table, _MOST_DRAWN, "All as a table")


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
    # Values that single rows carry: of all clients together, else of clients by themselves.
    yield from _carried(record)
    yield from _moved_by_one_row(record)


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
    actions = {
        client: listed([f"'{one.action}'" for one in fits], 3)
        for client, fits in doubted_clients(record).items()
    }
    if where := [f"{client} ({names})" for client, names in actions.items()]:
        yield Caution(
            "The models are too simple for some clients",
            f"Richer outcome models surely move what actions are worth at {listed(where)}.",
            f"Results for these clients are wrong by more than their intervals say. {REMEDY}",
        )


def _and_others(found: Sized, like: str = "the same for", what: str = "other action") -> str:
    """A phrase that more actions are like the worst one; empty if there are none."""
    return f" (and {like} {plural(len(found) - 1, what)})" if len(found) > 1 else ""


def _act_together(record: Record) -> Iterator[Caution]:
    """Features whose product is left in weights and residuals alike."""
    found = left_interactions(record)
    if not found:
        return
    first, name = found[0], OutcomeWords.of(record.study).name
    size = f"by about {plain(abs(first.too_high), 2)} {name} by these features alone"
    values = "What the policy was learned from may be off"
    if record.values.rows:
        values = "Values and gains may be off by more than their intervals say"
    yield Caution(
        "Features act together in ways that the models miss",
        f"Beyond what each does by itself, {listed(list(first.features))} together are left in "
        f"both models of '{first.action}': in the residuals of outcome models, and in who got it, "
        f"weighted by how unlikely that was{_and_others(found, 'so are', 'other product')}. Either "
        "would be harmless alone, and both at once are hardly chance.",
        f"{values}: what '{first.action}' is worth to everybody is, {size}. {_remedy(first)}",
    )


def _remedy(found: LeftInteraction) -> str:
    """What may bring the models to see it."""
    basis = "a [basis] with waves, as products are of two features"
    if len(found.features) == 2:
        basis = "a [basis] that has their product (products)"
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
        rows=tuple(
            (
                one.action,
                shift_in_words(one.moved),
                percent(max(one.explained, 0.0)),
                shift_in_words(one.trimmed),
                f"{decimal(one.imbalance, 2)}{' ✗' * one.is_unbalanced}",
                one.feature,
                percent(carried[one.action].weight),
                plain(carried[one.action].influence, 2),
            )
            for one in fits
        ),
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
    return Text(looked_at), table


def shift_in_words(shift: ValueShift) -> str:
    """The shift of a value and its standard error, in words."""
    if not shift.standard_error:
        return "nothing" if not shift.value else plain(shift.value, 3)
    return f"{plain(shift.value, 2)} ± {plain(shift.standard_error, 2)}"
