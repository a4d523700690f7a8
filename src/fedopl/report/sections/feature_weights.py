"""What favours each action: the weights of a linear or pairwise policy, or its curves."""

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.policies.allowed.permissions import OTHER
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.neural import NeuralPolicy
from fedopl.report.action_colours import colour_places
from fedopl.report.explain.curve_words import curve_sentences, wave_sentences
from fedopl.report.explain.explain_curves import Curve, CurveExplanation, explain_curves
from fedopl.report.explain.explain_network import explain_network, linear_alone
from fedopl.report.explain.explain_weights import (
    Against,
    Explanation,
    explain_weights,
    weight_sentences,
)
from fedopl.report.explain.learning_words import caution_words, choice_parts
from fedopl.report.figures.effects import FeatureValues, curves_chart, decision_map, weights_chart
from fedopl.report.parts import Folded, Heading, Key, Part, Picture, Points, Table, Text, texts
from fedopl.report.words.numbers import decimal, listed
from fedopl.report.words.policy_labels import is_arm
from fedopl.results.record import Record

WEIGHTS_TITLE = "What speaks for each action"
# The number of features and scores that are drawn, and of sentences that are written out.
_MOST_FEATURES, _MOST_PANELS, _MOST_SENTENCES = 8, 6, 12
_READINGS: dict[Against, str] = {
    "other": "The policy compares actions in pairs. A weight says how much one step up in a "
    "feature favours the first of a pair over the second.",
    "nothing": "The policy adds up a score for each action, from features that belong to that "
    "action alone, and takes the highest.",
    "mean": "The policy adds up a score for each action and takes the highest. Only differences "
    "between scores matter, so each weight is shown less the mean over all actions. No "
    "action has to serve as the reference, and what raises all scores alike drops out.",
}
_SCORES: dict[Against, str] = {
    "other": "The policy adds up a score for each action and takes the higher. Curves are of "
    "their difference: above 0 a feature favours the first of the two, below 0 the second.",
    "nothing": "The policy adds up a score for each action and takes the highest.",
    "mean": "The policy adds up a score for each action and takes the highest. Only differences "
    "between scores matter, so each score is shown less the mean over all actions.",
}
_CURVES = (
    "The effect of a feature need not be linear. Its curve shows what the feature adds at "
    "each of its values, while all others are at their means; 0 is what it adds on average."
)
_PROFILES = (
    "Scores are those of a linear policy and of a network, which has no weights to read. A curve "
    "is drawn from the policy itself: how a score moves with one feature while all others are at "
    "their means, and 0 is the average along the curve."
)
_ADDS = "What each feature adds to a score at each of its values, less what it adds on average."
_ALONG = (
    "How scores move with each feature while all others are at their means, less the average along "
    "the curve."
)
_MOST_CURVES, _MOST_PAIRS = 6, 5
_KEYS = (
    Key(colour="better", text="favours the action"),
    Key(colour="worse", text="disfavours it"),
)


def weight_parts(record: Record, policy: LinearPolicy) -> tuple[Part, ...]:
    """What favours each action, or why no feature favours any."""
    head = Heading(WEIGHTS_TITLE)
    if is_arm(record.study, record.chosen):
        return (head, Text("Everybody gets the same, so no feature plays a part."))
    shown = _curve_parts(record, policy) if policy.bends else _bar_parts(record, policy)
    return (head, *texts(caution_words(policy, record)), *shown, *choice_parts(record))


def _bar_parts(record: Record, policy: LinearPolicy) -> tuple[Part, ...]:
    explanation = explain_weights(policy, record)
    sentences = weight_sentences(explanation)
    if explanation.is_constant:
        return (Points(tuple(sentences)),)
    unit = "One step is one standard deviation of the feature, so that features can be compared."
    return (
        Text(f"{_READINGS[explanation.against]} {unit}"),
        Points(_few(sentences)),
        _chart(explanation, sentences),
        Folded(summary="All weights as a table", parts=(_table(explanation),)),
    )


def network_parts(record: Record, policy: NeuralPolicy) -> tuple[Part, ...]:
    """The curves of a policy with a network, and a note that they do not show everything."""
    if (alone := linear_alone(policy)) is not None:
        head, *others = weight_parts(record, policy.start)
        return (head, Text(alone), *others)
    found = explain_network(policy, record)
    curves = found.curves
    return (
        Heading(WEIGHTS_TITLE),
        Text(f"{_SCORES[curves.weights.against]} {_PROFILES}"),
        Points(_few(found.sentences)),
        _curves(curves, found.sentences, _ALONG),
        *choice_parts(record),
    )


def _few(found: list[str]) -> tuple[str, ...]:
    if len(found) <= _MOST_SENTENCES:
        return tuple(found)
    rest = len(found) - _MOST_SENTENCES
    return (*found[:_MOST_SENTENCES], f"{rest} more can be read from the table.")


def _chart(explanation: Explanation, sentences: list[str]) -> Picture:
    strength = np.abs(explanation.effects)
    features = np.sort(np.argsort(-strength.max(axis=0), kind="stable")[:_MOST_FEATURES])
    scores = np.sort(np.argsort(-strength.max(axis=1), kind="stable")[:_MOST_PANELS])
    names = [explanation.features[place] for place in features]
    panels = [(explanation.names[place], explanation.effects[place, features]) for place in scores]
    axis = f"weight per {explanation.step}; to the right favours"
    caption = f"Weight of each feature, per {explanation.step}."
    if len(features) < len(explanation.features) or len(scores) < len(explanation.names):
        caption += (
            f" Drawn are the {len(features)} of {len(explanation.features)} features and the "
            f"{len(scores)} of {len(explanation.names)} scores with the largest weights."
        )
    return Picture(
        name="weights",
        drawing=weights_chart("weights", names, panels, axis),
        label=f"{caption} {' '.join(sentences[:4])}",
        caption=caption,
        keys=_KEYS,
    )


def _curve_parts(record: Record, policy: LinearPolicy) -> tuple[Part, ...]:
    """The curves of a policy, and the map of the strongest pair of features."""
    found = explain_curves(policy, record)
    of_waves = wave_sentences(found)
    sentences = [text for text in curve_sentences(found) if text not in of_waves]
    return (
        Text(f"{_SCORES[found.weights.against]} {_CURVES}"),
        *map(Text, of_waves),
        Points(_few(sentences)),
        *((_curves(found, sentences),) if found.curves else ()),
        *(_acting_together(record, policy, found) if found.pairs else ()),
        Folded(summary="All weights as a table", parts=(_table(found.weights),)),
    )


def _curves(found: CurveExplanation, sentences: list[str], caption: str = _ADDS) -> Picture:
    drawn = found.curves[:_MOST_CURVES]
    strength = np.max([curve.strength for curve in found.curves], axis=0)
    scores = np.sort(np.argsort(-strength, kind="stable")[:_MOST_PANELS])
    rows = [(_values(curve), curve.adds[np.ix_(scores, curve.drawn)]) for curve in drawn]
    if len(drawn) < len(found.curves) or len(scores) < len(found.weights.names):
        caption += (
            f" Drawn are the {len(drawn)} of {len(found.curves)} features and the {len(scores)} of "
            f"{len(found.weights.names)} scores that move most."
        )
    titles = [found.weights.names[score] for score in scores]
    return Picture(
        name="curves",
        drawing=curves_chart("curves", rows, titles, "above 0 favours; the strongest first"),
        label=f"{caption} {' '.join(sentences[:4])}",
        caption=caption,
        keys=_KEYS,
    )


def _values(curve: Curve) -> FeatureValues:
    named = ("no", "yes") if curve.is_flag else ()
    return FeatureValues(label=curve.feature, at=curve.at[curve.drawn], named=named)


def _acting_together(
    record: Record, policy: LinearPolicy, found: CurveExplanation
) -> tuple[Part, ...]:
    table = Table(
        caption="Features that act together, the strongest first: standard deviation of what two "
        "add to a score beyond what each adds by itself",
        headers=("Features", *found.weights.names),
        rows=tuple(
            (" × ".join(one.features), *(decimal(float(own)) for own in one.strength))
            for one in found.pairs[:_MOST_PAIRS]
        ),
        long_names=True,
    )
    curves = {curve.place: curve for curve in found.curves}
    pair = [curves[place] for place in found.pairs[0].places if place in curves]
    if len(pair) < 2:
        return (table,)
    across, up = sorted(pair, key=lambda one: one.is_flag)
    return (_map(record, policy, across, up, found.average), table)


def _map(
    record: Record, policy: LinearPolicy, across: Curve, up: Curve, average: FloatArray
) -> Picture:
    """The decision for a row with average other features, by the strongest pair of features."""
    columns, rows = _values(across), _values(up)
    contexts = np.tile(average, (len(rows.at), len(columns.at), 1))
    contexts[..., across.place] = columns.at
    contexts[..., up.place] = rows.at[:, None]
    actions = policy.names(contexts.reshape(-1, len(average)), client=OTHER)
    places = colour_places(record)
    colours = np.array([places[action] for action in actions]).reshape(contexts.shape[:2])
    caption = (
        f"What somebody average in everything else gets, by {across.feature} and {up.feature}, the "
        "two features that act together most."
    )
    given = sorted({(places[action], action) for action in map(str, actions)})
    # Actions without a colour of their own share one.
    keys = {place: [name for own, name in given if own == place] for place, _ in given}
    return Picture(
        name="map",
        drawing=decision_map("map", columns, rows, colours),
        label=caption,
        caption=caption,
        keys=tuple(
            Key(colour=f"action-{place + 1}", text=listed(names)) for place, names in keys.items()
        ),
    )


def _table(explanation: Explanation) -> Table:
    rows = [
        (feature, *(decimal(float(weight)) for weight in explanation.effects[:, place]))
        for place, feature in enumerate(explanation.features)
    ]
    return Table(
        caption=f"Weights per {explanation.step}; positive favours the action",
        headers=("Feature", *explanation.names),
        rows=tuple(rows),
    )
