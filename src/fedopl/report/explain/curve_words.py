"""Policies with curved effects, as text and as JSON: where a feature favours an action."""

import math
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.tables import text_tables
from fedopl.policies.linear import LinearPolicy
from fedopl.report.explain.explain_curves import (
    SLIGHT,
    Curve,
    CurveExplanation,
    FeaturePair,
    WaveStrength,
    explain_curves,
)
from fedopl.report.explain.explain_weights import (
    MOST_WORDS,
    STRONG,
    favouring,
    step_word,
    weights_as_json,
    weights_as_text,
)
from fedopl.report.explain.learning_words import (
    caution_as_json,
    caution_words,
    choice_as_json,
    choice_parts,
    noise_as_json,
    noise_words,
)
from fedopl.report.parts import as_text
from fedopl.report.words.numbers import listed, plain
from fedopl.results.record import Record

_ALONE = (
    "Without its run, averages assume that numbers lie evenly between their outer knots, and "
    "that yes is as frequent as no."
)
_TURNS = 0.01  # of a curve's whole height: less is no turn


def policy_as_text(policy: LinearPolicy, record: Record | None, top: int) -> str:
    """What favours each action: curves for nonlinear effects, weights for the others."""
    if policy.bends:
        words = _curves_as_text(explain_curves(policy, record), top)
    else:
        words = weights_as_text(policy, record, top)
    by_noise = noise_words(record) if record else ""
    said = (words, caution_words(policy, record), as_text(choice_parts(record)), by_noise)
    return "\n\n".join(text for text in said if text)


def policy_as_json(policy: LinearPolicy, record: Record | None) -> dict[str, Any]:
    """What favours each action, with all points of all curves."""
    found = weights_as_json(policy, record)
    if policy.bends:
        found |= curves_as_json(explain_curves(policy, record))
    return found | caution_as_json(policy, record) | choice_as_json(record) | noise_as_json(record)


def curve_sentences(found: CurveExplanation) -> list[str]:
    """One sentence for each action, or for each pair of actions, then further remarks."""
    n_scores = len(found.weights.names)
    words = [_words(found, score) for score in range(n_scores)]
    together = [_together(found, score) for score in range(n_scores)]
    said = favouring(found.weights, words, [bool(own) for own in together])
    n_first = sum(" is favoured by " in text for text in said)
    of_pairs = [text for own in together for text in own]
    alone = [] if found.from_run else [_ALONE]
    return [*said[:n_first], *of_pairs, *wave_sentences(found), *said[n_first:], *alone]


def wave_sentences(found: CurveExplanation) -> list[str]:
    """What waves add, if the basis has any, and how much of that the curves show."""
    if found.waves is None:
        return []
    largest = float(found.waves.strength.max())
    return [
        f"Waves of {listed(list(found.waves.features))} at once move scores, too, by "
        f"{largest:.4g} (the largest standard deviation). Curves show the part that is added when "
        "all other features are at their means, less its average if the feature were normally "
        "distributed."
    ]


def _words(found: CurveExplanation, score: int) -> list[str]:
    """Where the features with the strongest effect on a score favour its action."""
    ranked = sorted(found.curves, key=lambda curve: -curve.strength[score])[:MOST_WORDS]
    strong = [curve for curve in ranked if curve.strength[score] >= STRONG * found.strongest]
    turned = _reversed(found, score)
    strong = [curve for curve in strong if curve.place not in turned]
    return [text for curve in strong if (text := where_favoured(found, curve, score))]


def where_favoured(found: CurveExplanation, curve: Curve, score: int) -> str:
    """Where a feature adds more than on average; empty if no drawn point lies above average."""
    adds = curve.adds[score]
    if curve.is_flag:
        return step_word(found.weights, curve.place, bool(adds[1] > adds[0]))
    least = _TURNS * float(np.ptp(adds))
    if (np.maximum.accumulate(adds) - adds).max() <= least:
        return f"higher {curve.feature}"
    if (adds - np.minimum.accumulate(adds)).max() <= least:
        return f"lower {curve.feature}"
    regions = [_region(curve, run) for run in _runs_above(adds)]
    return f"{curve.feature} {' or '.join(regions)}" if regions else ""


def _runs_above(adds: FloatArray) -> list[tuple[int, int]]:
    """Start and end points of the runs above zero that somewhere are well above it."""
    above = np.concatenate([[False], adds > 0, [False]])
    edges = np.flatnonzero(above[1:] != above[:-1])
    runs = zip(edges[::2], edges[1::2] - 1, strict=True)
    least = SLIGHT * float(adds.max())
    return [(int(a), int(b)) for a, b in runs if adds[a : b + 1].max() >= least]


def _region(curve: Curve, run: tuple[int, int]) -> str:
    first, last = run
    low, high = _value_at(curve, first), _value_at(curve, last)
    if first == 0:
        return f"up to {high}"
    return f"from {low} on" if last == len(curve.at) - 1 else f"from {low} to {high}"


def _value_at(curve: Curve, point: int) -> str:
    """The value at a point: where the curve jumps as it is, otherwise rounded."""
    at = curve.at[point]
    for cut in curve.cuts:
        if at in (cut, np.nextafter(cut, np.inf)):
            return plain(float(cut))
    # To a hundredth of the range that is drawn.
    digits = -math.floor(math.log10((curve.at[-1] - curve.at[0]) / 100))
    return plain(round(float(at), digits) + 0.0)


def _strong_pairs(found: CurveExplanation, score: int) -> list[FeaturePair]:
    """The pair that affects a score most, and all with corners; none whose effect is small."""
    ranked = sorted(found.pairs, key=lambda pair: -pair.strength[score])
    kept = [pair for place, pair in enumerate(ranked) if pair.corner or not place]
    return [pair for pair in kept if pair.strength[score] >= STRONG * found.strongest][:MOST_WORDS]


def _reversed(found: CurveExplanation, score: int) -> set[int]:
    """The places of features whose effect on a score another feature reverses at a corner."""
    return {
        place
        for pair in _strong_pairs(found, score)
        if pair.corner
        for place, turned in zip(pair.places, pair.corner.reverses[score], strict=True)
        if turned
    }


def _together(found: CurveExplanation, score: int) -> list[str]:
    """How the strongest pairs of features affect an action; empty if the effect is small."""
    if found.weights.is_seldom(found.weights.spoken[score]):
        return []
    return [_pair_words(found, pair, score) for pair in _strong_pairs(found, score)]


def _pair_words(found: CurveExplanation, pair: FeaturePair, score: int) -> str:
    """One sentence about two features: where a corner favours an action, or which sides do."""
    spoken = found.weights.spoken[score]
    if pair.corner and (where := pair.corner.where_favoured(score)):
        first, second = pair.features
        return f"{first} and {second} act together: they favour {spoken} {where}."
    leaning = pair.leaning[score]
    if not leaning:
        return f"How {pair.features[0]} favours {spoken} depends on {pair.features[1]}."
    (high, low), (high_too, low_too) = (_sides(found, place) for place in pair.places)
    if leaning < 0:
        high_too, low_too = low_too, high_too
    return f"{spoken} is favoured, too, by {high} with {high_too}, and by {low} with {low_too}."


def _sides(found: CurveExplanation, place: int) -> tuple[str, str]:
    """Words for a feature above its mean, and for a feature below its mean."""
    name = found.weights.features[place]
    if name in found.weights.levels or found.weights.yes_no[place]:
        return step_word(found.weights, place, True), step_word(found.weights, place, False)
    return f"{name} above average", f"{name} below average"


def _curves_as_text(found: CurveExplanation, top: int) -> str:
    pairs = [
        [" × ".join(pair.features), *(f"{deviation:.4g}" for deviation in pair.strength)]
        for pair in found.pairs[:top]
    ]
    headers = ["together", *(f"deviation for {name}" for name in found.weights.names)]
    tables = [curve_table(found, top), *([text_tables(headers, pairs)] if pairs else [])]
    return "\n\n".join(["\n".join(curve_sentences(found)), *tables])


def curve_table(found: CurveExplanation, top: int) -> str:
    """A table with points of the `top` strongest curves."""
    rows = [
        [curve.feature, _value(found, curve, at)]
        + [f"{np.interp(at, curve.at, adds):+.4g}" for adds in curve.adds]
        for curve in found.curves[:top]
        for at in curve.shown
    ]
    headers = ["feature", "at", *(f"adds for {name}" for name in found.weights.names)]
    return text_tables(headers, rows, 2)


def _value(found: CurveExplanation, curve: Curve, at: float) -> str:
    if curve.is_flag and found.weights.yes_no[curve.place]:
        return "yes" if at else "no"
    return plain(float(at), 4)


def curves_as_json(found: CurveExplanation) -> dict[str, Any]:
    """The sentences, all points of all curves, and the pairs of features that act together."""

    def by_score(numbers: FloatArray) -> dict[str, Any]:
        return dict(zip(found.weights.names, numbers.tolist(), strict=True))

    def strength(one: FeaturePair | WaveStrength) -> dict[str, Any]:
        return {"features": list(one.features), "strength": by_score(one.strength)}

    return {
        "sentences": curve_sentences(found),
        "curves": {
            curve.feature: {
                "at": curve.at.tolist(),
                "adds": by_score(curve.adds),
                "strength": by_score(curve.strength),
            }
            for curve in found.curves
        },
        "together": [strength(pair) for pair in found.pairs],
        **({"waves": strength(found.waves)} if found.waves else {}),
    }
