"""Coalitions: what each brings its members, and how much each client's data help all clients."""

from fedopl.report.explain.in_doubt import verdict_table
from fedopl.report.joining.advising import MOST_WORDED
from fedopl.report.joining.context import JoiningFacts
from fedopl.report.parts import Heading, Part, Points, Table, Text, folded_if_long
from fedopl.report.words.numbers import (
    Span,
    common_decimals,
    count,
    decimal,
    listed,
    percent,
    plural,
    with_error,
)
from fedopl.report.words.policy_labels import OutcomeWords, verdict
from fedopl.results.diagnosis import Coalition, Coalitions, Stability

# Limits: coalitions in the table, in an unfolded table, named in a sentence; members left out.
_MOST_COMPARED, _MOST_SHOWN, _MOST_LISTED, _MOST_NAMED = 26, 12, 6, 3
_WORTH = {
    "better": "all together need its rows",
    "worse": "all together would do better without",
    "unclear": "no clear difference",
    "same": "no difference",
}
_ORDER: tuple[Stability, ...] = ("surely", "cannot tell", "surely not")
_HOW_LEARNED = {
    "linear": "by csoaa-exact, whatever the oracle",
    "tree": "by the same search for a tree",
    "finite": "as the best of the candidates",
}


def coalition_parts(facts: JoiningFacts) -> tuple[Part, ...]:
    """A summary, then who gains from whom, every coalition, and the worth of each client's data."""
    coalitions = facts.record.diagnosis.coalitions if facts.record.diagnosis else None
    if coalitions is None:
        return ()
    about = _about(facts, coalitions)
    return (
        Heading("Who would learn with whom"),
        Text(coalitions_in_short(facts, coalitions)),
        *_pairs(facts, coalitions),
        _table(facts, coalitions, about),
        *_worth(facts, coalitions),
        Text(_how(facts), quiet=True),
    )


def coalitions_in_short(facts: JoiningFacts, coalitions: Coalitions) -> str:
    """Which coalitions surely no member wants to leave, and which some member surely does."""
    stable = [one for one in coalitions.compared if one.stability == "surely"]
    left = [one for one in coalitions.compared if one.stability == "surely not"]
    level = percent(coalitions.grand.level)
    said = (
        "A coalition is individually stable if no member would do better alone. A member's own "
        f"{facts.valued('rows')} decide this only if its whole {level} interval lies to one side. "
        f"These intervals hold for all {count(len(coalitions.compared))} coalitions together, "
        "with 95 %. "
    )
    if stable:
        said += f"Surely stable: {_names_of(coalitions, stable)}. "
    if left:
        said += f"Surely not, as some member clearly loses: {_names_of(coalitions, left)}. "
    if not stable and not left:
        return f"{said}The rows cannot decide it for any."
    rest = len(coalitions.compared) - len(stable) - len(left)
    return f"{said}For the others, the rows cannot decide it." if rest else said.rstrip()


def _names_of(coalitions: Coalitions, some: list[Coalition]) -> str:
    names = [_name_of(coalitions, one) for one in some]
    if len(names) <= _MOST_LISTED:
        return listed(names, _MOST_LISTED)
    n_all = len(coalitions.compared)
    return f"{len(names):,} of {n_all:,} coalitions, for example {listed(names[:_MOST_NAMED])}"


def _name_of(coalitions: Coalitions, coalition: Coalition) -> str:
    """The coalition's members, or the missing clients, whichever is shorter."""
    missing = [name for name in coalitions.clients if name not in coalition.members]
    n_members = len(coalition.members)
    if n_members > 2 and len(missing) < min(_MOST_NAMED, n_members):
        return f"all but {listed(missing)}" if missing else "everybody together"
    return " + ".join(coalition.members)


def _pairs(facts: JoiningFacts, coalitions: Coalitions) -> tuple[Part, ...]:
    """Which client gains from which, when two learn together."""
    items = []
    for one in coalitions.compared:
        if len(one.members) != 2:
            continue
        for name, other in (one.members, one.members[::-1]):
            gain = Span.of(one.gains[name], one.level)
            if name in facts.clients and verdict(gain) in ("better", "worse"):
                verb = "gains from" if gain.value > 0 else "loses by"
                amount = decimal(abs(gain.value), gain.fitting_decimals)
                items.append(
                    f"{name} {verb} learning with {other} alone: {amount} per decision "
                    f"({percent(gain.level)} interval {gain.interval})."
                )
    if not items:
        return (Text("No client clearly gains or loses by learning with one other alone."),)
    return (Points(tuple(items[:MOST_WORDED])),)


def _about(facts: JoiningFacts, coalitions: Coalitions) -> list[Coalition]:
    """All coalitions; if too many, the grand one first, then surely stable; surely not last."""
    compared = [
        one
        for one in coalitions.compared
        if facts.is_about_all or set(one.members) & set(facts.clients)
    ]
    if len(compared) <= _MOST_COMPARED:
        return compared
    everybody = len(coalitions.clients)
    ranked = sorted(
        compared,
        key=lambda one: (
            len(one.members) != everybody,
            _ORDER.index(one.stability),
            -len(one.members),
        ),
    )
    return ranked[:_MOST_COMPARED]


def _table(facts: JoiningFacts, coalitions: Coalitions, about: list[Coalition]) -> Part:
    unit = OutcomeWords.of(facts.record.study).name
    n_all = len(coalitions.compared)
    some = "" if len(about) == n_all else f"; {len(about)} of {n_all:,} coalitions"
    decimals = common_decimals([gain for one in about for gain in one.gains.values()])
    table = Table(
        caption=f"What learning together brings each member over its own policy, in {unit} per "
        f"decision ± standard error{some}",
        headers=("Together", "Stable", *coalitions.clients),
        rows=tuple(_row(coalitions, one, decimals) for one in about),
        text_columns=(1,),
    )
    summary = f"{plural(len(about), 'coalition')}, member by member"
    return folded_if_long(table, _MOST_SHOWN, summary)


def _row(coalitions: Coalitions, one: Coalition, decimals: int) -> tuple[str, ...]:
    cells = dict.fromkeys(coalitions.clients, "–")
    for name, gain in one.gains.items():
        alike = gain.value == gain.standard_error == 0
        cells[name] = "decide alike" if alike else with_error(gain, decimals)
    return (_name_of(coalitions, one), one.stability, *cells.values())


def _worth(facts: JoiningFacts, coalitions: Coalitions) -> tuple[Part, ...]:
    """What all clients together lose without one client's rows."""
    worth = coalitions.worth_of_data
    level = 1 - 0.05 / max(len(worth), 1)  # for all clients together
    spans = {name: Span.of(worth[name], level) for name in worth if name in facts.clients}
    if not spans:
        return ()
    unit = OutcomeWords.of(facts.record.study).name
    caption = (
        f"Worth of each client's data: what all together lose without it, in {unit} per decision"
    )
    headers = ("Without", "Loss", f"{percent(level)} interval", "In words")
    return (verdict_table(caption, headers, spans, _WORTH),)


def _how(facts: JoiningFacts) -> str:
    study = facts.record.study
    shared = (
        " Outcome models are shared by all clients, so the scores rest on the rows of all in "
        "any case."
        if study.nuisances.kind == "federated"
        else ""
    )
    by_fold = " Each fold is valued by the one learned without it."
    return (
        "A coalition's policy is learned from its members' sums alone, every row counting the "
        f"same (n̄ among the members), {_HOW_LEARNED[study.policy.kind]}."
        f"{by_fold * study.evaluation.is_cross_fitted}{shared}"
    )
