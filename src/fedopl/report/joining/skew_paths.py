"""More weight for one client: values and the bound along the path from n̄ to that client alone."""

import math

from fedopl.analysis.modelled_gains import PLAIN, global_bound
from fedopl.report.figures.line_charts import Along, path_chart, path_keys
from fedopl.report.joining.context import JoiningFacts
from fedopl.report.parts import Folded, Heading, Part, Picture, Table, Text
from fedopl.report.words.numbers import Span, alike, count, decimal, plain, plural
from fedopl.report.words.policy_labels import OutcomeWords
from fedopl.results.mixture_search import PathPoint, SkewPath
from fedopl.study.mixture import BestSkew, Skewed

_WHAT = (
    "A policy for all together may serve one client less well than a policy for it alone, but "
    "rests on more rows. Between the two lie mixtures that move a share α of the others' weight to "
    "it: at 0 every row counts the same (n̄), at 1 only its own do."
)


def path_parts(facts: JoiningFacts) -> tuple[Part, ...]:
    """One client's path in full; the paths of others are folded away."""
    paths = facts.record.diagnosis.paths if facts.record.diagnosis else {}
    shown = {name: path for name, path in paths.items() if name in facts.clients}
    if not shown:
        return ()
    first = _target(facts, shown)
    others = [name for name in sorted(shown) if name != first]
    parts: list[Part] = [Heading("More weight for one client"), Text(_WHAT)]
    parts += _path(facts, shown[first], "path")
    folded: list[Part] = []
    for place, name in enumerate(others, start=1):
        folded += [Heading(f"Toward {name}"), *_path(facts, shown[name], f"path-{place}")]
    if folded:
        summary = f"The same for {plural(len(others), 'other client')}"
        parts.append(Folded(summary=summary, parts=tuple(folded)))
    return tuple(parts)


def _target(facts: JoiningFacts, paths: dict[str, SkewPath]) -> str:
    """The client that the mixture names, otherwise the one whose values differ most from n̄'s."""
    plan = facts.record.study.mixture
    if isinstance(plan, Skewed | BestSkew) and plan.toward in paths:
        return plan.toward
    # Sorted, so that ties are broken the same way every time.
    return max(sorted(paths), key=lambda name: gap_from_rows(facts, name) or 0.0)


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
    return (Text(path.verdict), _drawn(facts, path, name), _table(facts, path))


def _drawn(facts: JoiningFacts, path: SkewPath, name: str) -> Picture:
    outcome = OutcomeWords.of(facts.record.study)
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


def _table(facts: JoiningFacts, path: SkewPath) -> Table:
    outcome = OutcomeWords.of(facts.record.study)
    values = alike([Span.of(point.at_target) for point in path.points])
    gains = alike([Span.of(point.target_gain) for point in path.points])
    rows = []
    for point, value, gain in zip(path.points, values, gains, strict=True):
        shift = shift_at(facts, path.target, point)
        cells = (
            plain(point.alpha),
            decimal(point.skewness, 2),
            count(point.effective_rows),
            "not reported" if shift is None else decimal(shift),
            decimal(regret_bound(facts, point) + (shift or 0.0)),
            value.number,
            f"{gain.number} ({gain.interval})" if point.alpha else "–",
        )
        rows.append(cells)
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
        rows=tuple(rows),
    )
