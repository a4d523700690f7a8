"""Other ways to learn together: more weight for one client, and coalitions of some."""

import math

from fedopl.analysis.modelled_gains import PLAIN, global_bound
from fedopl.report.explain.in_doubt import verdict_table
from fedopl.report.figures.line_charts import Along, path_chart, path_keys
from fedopl.report.joining.advising import MOST_WORDED, JoiningFacts
from fedopl.report.parts import Folded, Heading, Part, Picture, Points, Table, Text, folded_if_long
from fedopl.report.words.numbers import (
    Span,
    alike,
    common_decimals,
    count,
    decimal,
    listed,
    percent,
    plain,
    plural,
    with_error,
)
from fedopl.report.words.policy_labels import OutcomeWords, verdict
from fedopl.results.diagnosis import Coalition, Coalitions, Stability
from fedopl.results.mixture_search import PathPoint, SkewPath
from fedopl.study.mixture import BestSkew, Skewed
from fedopl.study.study import Study

_WHAT = (
    "A policy for all together may serve one client less well than a policy for it alone, but "
    "rests on more rows. Between the two lie mixtures that move a share α of the others' weight to "
    "it: at 0 every row counts the same (n̄), at 1 only its own do."
)


def path_parts(facts: JoiningFacts) -> tuple[Part, ...]:
    """One client's path in full; the paths of others are folded away."""
    paths = facts.record.diagnosis.paths if facts.record.diagnosis else {}
    shown = dict(facts.of_clients(paths))
    if not shown:
        return ()
    # The client whose values differ most from n̄'s, or that the mixture names. Sorted, so that ties
    # are broken the same way every time.
    first = max(sorted(shown), key=lambda name: gap_from_rows(facts, name) or 0.0)
    plan = facts.record.study.mixture
    if isinstance(plan, Skewed | BestSkew) and plan.toward in shown:
        first = plan.toward
    others = [name for name in sorted(shown) if name != first]
    parts = (
        Heading("More weight for one client"),
        Text(_WHAT),
        *_path(facts, shown[first], "path"),
    )
    folded = [
        part
        for place, name in enumerate(others, start=1)
        for part in (Heading(f"Toward {name}"), *_path(facts, shown[name], f"path-{place}"))
    ]
    if not folded:
        return parts
    summary = f"The same for {plural(len(others), 'other client')}"
    return (*parts, Folded(summary=summary, parts=tuple(folded)))


def gap_from_rows(facts: JoiningFacts, client: str) -> float | None:
    """How far the client's values lie from the values in n̄, the start of every path."""
    diagnosis = facts.record.diagnosis
    if diagnosis is None or client not in diagnosis.from_rows:
        return None
    return diagnosis.from_rows[client].regret_gap


def regret_bound(facts: JoiningFacts, point: PathPoint) -> float:
    """Theorem 1's term at this point of a path, with the requested constant."""
    bound = global_bound(facts.record, PLAIN, point.weights)
    return facts.constant * bound.total if bound else math.nan


def shift_at(facts: JoiningFacts, client: str, point: PathPoint) -> float | None:
    """The client's distance from λ(α) = (1 − α)·n̄ + α·δ_c: 1 − α times its distance from n̄."""
    gap = gap_from_rows(facts, client)
    return None if gap is None else (1 - point.alpha) * gap


def _path(facts: JoiningFacts, path: SkewPath, name: str) -> tuple[Part, ...]:
    points = [
        Along(
            alpha=point.alpha,
            at_target=Span.of(point.at_target),
            in_base=Span.of(point.in_base),
            regret=regret_bound(facts, point),
            shift=shift_at(facts, path.target, point),
        )
        for point in path.points
    ]
    drawn = _drawn(facts, path, points, name)
    return (Text(path.verdict), drawn, _path_table(facts, path, points))


def _drawn(facts: JoiningFacts, path: SkewPath, points: list[Along], name: str) -> Picture:
    outcome = OutcomeWords.of(facts.record.study)
    first, last = points[0], points[-1]
    both = f"from {first.at_target.number} at α = 0 to {last.at_target.number} at α = 1"
    rows = facts.record.study.evaluation.rows_valued
    no_shift = "" if first.shift is not None else " The shift was not reported."
    return Picture(
        name=name,
        drawing=path_chart(name, points, facts.constant, rows),
        label=f"Value at {path.target} along α, {both}, and the regret bound in its parts. "
        f"{path.verdict}",
        caption=f"Toward {path.target}. Left: {outcome.name} per decision on {rows} "
        f"({outcome.better}), with 95 % intervals. Right: how more weight changes the bound: less "
        f"shift, but fewer effective rows.{no_shift}",
        keys=path_keys(path.target, shift=first.shift is not None),
    )


def _path_table(facts: JoiningFacts, path: SkewPath, points: list[Along]) -> Table:
    outcome = OutcomeWords.of(facts.record.study)
    values = alike([known.at_target for known in points])
    gains = alike([Span.of(point.target_gain) for point in path.points])
    return Table(
        caption=f"From all together to {path.target} alone: {outcome.name} per decision, and the "
        f"bound at constant {plain(facts.constant)}",
        headers=(
            "α",
            "Skewness",
            "Effective rows",
            "Shift",
            "Bound",
            f"Value there ({outcome.better})",
            "Gain over α = 0 (95 % interval)",
        ),
        rows=tuple(
            (
                plain(point.alpha),
                decimal(point.skewness, 2),
                count(point.effective_rows),
                "not reported" if known.shift is None else decimal(known.shift),
                decimal(known.total),
                value.number,
                f"{gain.number} ({gain.interval})" if point.alpha else "–",
            )
            for point, known, value, gain in zip(path.points, points, values, gains, strict=True)
        ),
    )


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
        Text(_how(facts.record.study), quiet=True),
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
    compared = [one for one in coalitions.compared if set(one.members) & set(facts.clients)]
    if len(compared) <= _MOST_COMPARED:
        return compared

    def rank(one: Coalition) -> tuple[bool, int, int]:
        size, stable = len(one.members), _ORDER.index(one.stability)
        return size != len(coalitions.clients), stable, -size

    return sorted(compared, key=rank)[:_MOST_COMPARED]


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


def _how(study: Study) -> str:
    by_fold = " Each fold is valued by the one learned without it."
    shared = (
        " Outcome models are shared by all clients, so the scores rest on the rows of all in any "
        "case."
    )
    return (
        "A coalition's policy is learned from its members' sums alone, every row counting the "
        f"same (n̄ among the members), {_HOW_LEARNED[study.policy.kind]}."
        f"{by_fold * study.evaluation.is_cross_fitted}"
        f"{shared * (study.nuisances.kind == 'federated')}"
    )
