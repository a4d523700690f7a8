"""The mixture: how much each client counts, how weights were found, and their cost."""

import numpy as np

from fedopl.report.explain.learning_words import noise_words, weights_by_noise
from fedopl.report.figures.line_charts import ASCENT_KEYS, ascent_chart
from fedopl.report.figures.shares import Shares, strips
from fedopl.report.parts import Heading, Part, Picture, Section, Table, Text, folded_if_long, texts
from fedopl.report.words.numbers import (
    Span,
    alike,
    count,
    decimal,
    listed,
    percent,
    plain,
    plural,
    whole_percent,
)
from fedopl.report.words.policy_labels import OutcomeWords
from fedopl.results.mixture_search import MinimaxSearch, SkewPath
from fedopl.results.record import Record
from fedopl.study.mixture import Weights, agreed_weights, renormalised
from fedopl.theory.skew import skewness

_AGREED = "How much each client counts was agreed before anything ran"
_TO_BE_FOUND = "How to find out how much each client counts was agreed before anything ran"
_KINDS = {
    "empirical": f"{_AGREED}: by its number of rows. Row weights, where a table has them, count "
    "only among the rows of the same client. They move no weight from one client to another.",
    "uniform": f"{_AGREED}: every client counts the same, however many rows it has.",
    "given": f"{_AGREED}: the weights were decided on beforehand.",
    "skewed": f"{_AGREED}: part of everybody's weight was moved to one client.",
    "path": f"{_TO_BE_FOUND}: one client gets as much of the others' weight as is best for it.",
    "minimax": f"{_TO_BE_FOUND}: so that the client that loses most loses as little as possible.",
}
_BY_WEIGHT = f"{_AGREED}: by the sum of its row weights, as the client reported it."


def mixture_weights(record: Record) -> Section:
    """The section."""
    total = sum(record.rows.values())
    said = texts(
        _BY_WEIGHT if record.row_weights else _KINDS[record.study.mixture.kind],
        _robust(record, total),
        _meaning(skewness(record.mixture, record.rows), total),
        noise_words(record),
    )
    found: tuple[Part, ...] = ()
    if isinstance(record.search, SkewPath):
        found = _by_path(record, record.search)
    if isinstance(record.search, MinimaxSearch):
        found = _by_ascent(record, record.search)
    parts = (*said, _table(record, total), *found)
    return Section(name="mixture", title="How much each client counts", parts=parts)


def _agreed(record: Record) -> Weights:
    mixture = record.study.mixture
    return agreed_weights(mixture, record.counted.by(mixture))


def _robust(record: Record, total: int) -> str:
    """How much agreed weights were changed, and the cost of that change; empty if they were not."""
    how = record.study.mixture.robust
    if how is None:
        return ""
    agreed = _agreed(record)
    left_out = sorted(name for name, weight in record.mixture.items() if not weight)
    moved = sum(abs(record.mixture[name] - agreed[name]) for name in agreed) / 2
    before, after = (total / skewness(w, record.rows) for w in (agreed, record.mixture))
    nothing = f", and {listed(left_out)} count for nothing" if left_out else ""
    return (
        f"Then weights were changed to follow the sums on which most clients agree ({how}): "
        f"{percent(moved)} of all weight moved{nothing}. The price is precision: the rows are "
        f"worth as much as {count(after)}, instead of {count(before)}, and honest clients that "
        "differ lose weight just as dishonest ones do."
    )


def _meaning(skew: float, total: int) -> str:
    number = f"The skewness of this weighing is {decimal(skew, 2)}"
    if skew < 1.005:
        return f"{number}, the smallest possible: all {count(total)} rows count in full."
    return (
        f"{number}: the {count(total)} rows are worth as much as {count(total / skew)} rows "
        "with equal weight. That is the price of weighting some clients above their share of "
        "rows."
    )


def _table(record: Record, total: int) -> Part:
    weights = renormalised(record.mixture, record.mixture.keys())
    columns = {"Weight (λ)": weights}
    if record.study.mixture.robust:
        columns = {"Agreed weight": _agreed(record), "Robust weight (λ)": weights}
    if by_noise := weights_by_noise(record):
        columns["Weight in learning"] = dict.fromkeys(weights, 0.0) | by_noise.weights
    told = {"Weight of its rows": record.row_weights} if record.row_weights else {}
    table = Table(
        caption="Share of rows and weight of each client",
        headers=("Client", "Rows learned from", "Share of rows (n̄)", *told, *columns),
        rows=tuple(
            (
                name,
                count(record.rows[name]),
                f"{100 * record.rows[name] / total:.1f} %",
                *(decimal(own[name], 0) for own in told.values()),
                *(f"{100 * own[name]:.1f} %" for own in columns.values()),
            )
            for name in sorted(weights)
        ),
    )
    return folded_if_long(table)


# --- along a path --------------------------------------------------------------------------------


def _by_path(record: Record, path: SkewPath) -> tuple[Part, ...]:
    apart = (
        "The rest of the page values each fold by a policy for weights that were found without it."
        if record.study.evaluation.is_cross_fitted
        else "The held-out rows, which the rest of the page uses, are not used here."
    )
    return (
        Heading(f"How far to go toward {path.target}"),
        Text(_chosen(path)),
        _tried(record, path),
        Text(
            f"These values are measured on rows kept back from training for this choice. {apart}",
            quiet=True,
        ),
    )


def _chosen(path: SkewPath) -> str:
    best, chosen = path.best_for_target, path.chosen
    gain = Span.of(best.target_gain)
    if chosen.alpha:
        return (
            f"A share α = {plain(chosen.alpha)} of the others' weight went to {path.target}: of "
            f"{plural(len(path.points), 'mixture')} tried, it was worth most to it, {gain.number} "
            f"more per decision than α = 0 (95 % interval {gain.interval}), which is more than "
            "chance would show one time in twenty."
        )
    if best.alpha:
        return (
            f"No weight was moved to {path.target}, so every row counts the same. The best of the "
            f"others, α = {plain(best.alpha)}, gained {gain.number} (95 % interval "
            f"{gain.interval}). Chance may show as much, and weight is moved only where it is "
            "shown to help."
        )
    return (
        f"No weight was moved to {path.target}, so every row counts the same: that was worth most "
        f"to it, of {plural(len(path.points), 'mixture')} tried."
    )


def _tried(record: Record, path: SkewPath) -> Table:
    outcome = OutcomeWords.of(record.study)
    values = alike([Span.of(point.at_target) for point in path.points])
    gains = alike([Span.of(point.target_gain) for point in path.points])
    return Table(
        caption=f"Mixtures tried: {outcome.name} per decision at {path.target} "
        f"({outcome.better}), on rows kept back, with 95 % intervals",
        headers=("α", "Skewness", "Effective rows", "Value there", "Gain over α = 0", ""),
        rows=tuple(
            (
                plain(point.alpha),
                decimal(point.skewness, 2),
                count(point.effective_rows),
                f"{value.number} ({value.interval})",
                f"{gain.number} ({gain.interval})" if point.alpha else "–",
                "chosen" if point is path.chosen else "",
            )
            for point, value, gain in zip(path.points, values, gains, strict=True)
        ),
        text_columns=(5,),
    )


# --- for the client that loses most --------------------------------------------------------------

_MOST_STRIPS, _MOST_COLUMNS = 10, 8  # clients in the figure, and steps in it


def _by_ascent(record: Record, found: MinimaxSearch) -> tuple[Part, ...]:
    return (
        Heading("How the weights were found"),
        Text(_ascended(record, found)),
        _trace(record, found),
        *_weights_by_step(found),
        _regrets(record, found),
        Text(_at_least(record, found), quiet=True),
    )


def _ascended(record: Record, found: MinimaxSearch) -> str:
    first, unit = found.trace[0], OutcomeWords.of(record.study).name
    steps = plural(len(found.trace), "step")
    ended = f"It ended after {steps} without having converged: more steps may find better weights."
    if found.converged:
        ended = f"It converged after {steps}."
    change = f"stayed at {decimal(first.largest)}"
    if found.largest < first.largest:
        change = f"fell from {decimal(first.largest)} to {decimal(found.largest)}"
    return (
        "Step by step, the client that lost most by the policy for the last weights got more "
        f"weight. The largest regret of any client {change} {unit} per decision, on training "
        f"rows. {ended}"
    )


def _trace(record: Record, found: MinimaxSearch) -> Picture:
    unit = OutcomeWords.of(record.study).name
    largest = [step.largest for step in found.trace]
    caption = (
        f"Largest regret of any client, and the game's gap, after each of {len(largest)} steps. "
        "Where the gap is near zero, all steps together solve the game."
    )
    gaps = [step.gap for step in found.trace]
    return Picture(
        name="ascent",
        drawing=ascent_chart("ascent", largest, gaps, f"{unit} per decision"),
        label=f"{caption} Regret from {decimal(largest[0])} to {decimal(min(largest))} at best.",
        caption=caption,
        keys=ASCENT_KEYS,
    )


def _weights_by_step(found: MinimaxSearch) -> tuple[Part, ...]:
    names = sorted(found.weights)
    if len(names) > _MOST_STRIPS:
        return ()
    last = len(found.trace) - 1
    # Spread evenly, with the first and the last among them.
    steps = np.unique(np.linspace(0, last, min(_MOST_COLUMNS, last + 1)).round().astype(int))
    items = [
        Shares(
            label=name,
            shares=[found.trace[step].weights[name] for step in steps],
            note=whole_percent(found.weights[name]),
        )
        for name in names
    ]
    columns, axis = [f"{step + 1}" for step in steps], "step; weights in per cent"
    ends = "; ".join(f"{item.label}: {item.note}" for item in items)
    return (
        Picture(
            name="ascent-weights",
            drawing=strips("ascent-weights", items, columns, axis, "found"),
            label=f"Weights by step, and those found in the end. {ends}.",
            caption="Weight of each client, in per cent, at some of the steps. On the right, what "
            "was found: of all steps and their average, the weights whose policy leaves the "
            "least regret.",
        ),
    )


def _regrets(record: Record, found: MinimaxSearch) -> Part:
    first = found.trace[0]
    table = Table(
        caption=f"Regret on training rows in {OutcomeWords.of(record.study).name} per decision, "
        "and weights, at first and as found",
        headers=(
            "Client",
            "Regret at first",
            "Regret as found",
            "Weight at first",
            "Weight as found",
        ),
        rows=tuple(
            (
                name,
                *(decimal(one.regrets[name]) for one in (first, found)),
                *(f"{100 * one.weights[name]:.1f} %" for one in (first, found)),
            )
            for name in sorted(found.weights)
        ),
    )
    return folded_if_long(table)


def _at_least(record: Record, found: MinimaxSearch) -> str:
    """The lower bound from the game; least squares may find policies that its steps miss."""
    regret = "Regret is what the shared policy loses against the client's own on its training rows."
    floor = decimal(found.at_least)
    if found.at_least > found.largest:
        return (
            f"{regret} If every step's policy were the best for its weights, no policy could "
            f"leave every client with less than {floor}. Policies by least squares are not "
            "exactly the best; the one found does better."
        )
    said = (
        f"{regret} No policy, and no lottery over policies, leaves every client with less than "
        f"{floor}."
    )
    plan = record.study.policy
    if plan.is_best_for_weights and not record.study.caution:
        return said
    which = "with caution" if plan.is_best_for_weights else "by least squares"
    return (
        f"{said} Policies {which} are not exactly the best for their weights, so this holds only "
        "roughly."
    )
