"""The weights of a linear or pairwise policy: what speaks for each action."""

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.policies.linear import LinearPolicy
from fedopl.report.explain.explain_weights import (
    Against,
    Explanation,
    explain_weights,
    weight_sentences,
)
from fedopl.report.figures.bars import weights_chart
from fedopl.report.parts import Folded, Heading, Key, Part, Picture, Points, Table, Text
from fedopl.report.words.numbers import decimal
from fedopl.report.words.policy_labels import is_arm
from fedopl.results.record import Record

WEIGHTS_TITLE = "What speaks for each action"
# Features and scores that are drawn, and sentences that are written out.
_MOST_FEATURES, _MOST_PANELS, _MOST_SENTENCES = 8, 6, 12
_READINGS: dict[Against, str] = {
    "other": "The policy compares actions in pairs. A weight says how much one step up in a "
    "feature speaks for the first of a pair and against the second.",
    "nothing": "The policy adds up a score for each action, from features that belong to that "
    "action alone, and takes the highest.",
    "mean": "The policy adds up a score for each action and takes the highest. Only differences "
    "between scores matter, so each weight is held against the mean over all actions: no action "
    "has to serve as the yardstick, and what raises all scores alike drops out.",
}
_KEYS = (
    Key(colour="better", text="speaks for the action"),
    Key(colour="worse", text="speaks against it"),
)


def weight_parts(record: Record, policy: LinearPolicy) -> tuple[Part, ...]:
    """What speaks for each action, or why no feature does."""
    head = Heading(WEIGHTS_TITLE)
    if is_arm(record.study, record.chosen):
        return (head, Text("Everybody gets the same, so no feature plays a part."))
    explanation = explain_weights(policy, record)
    if explanation.is_constant:
        return (head, Points(tuple(weight_sentences(explanation))))
    return (
        head,
        Text(_reading(explanation)),
        Points(_few_sentences(explanation)),
        _chart(explanation),
        Folded(summary="All weights as a table", parts=(_table(explanation),)),
    )


def _reading(explanation: Explanation) -> str:
    unit = "One step is one standard deviation of the feature, so that features can be compared."
    return f"{_READINGS[explanation.against]} {unit}"


def _few_sentences(explanation: Explanation) -> tuple[str, ...]:
    found = weight_sentences(explanation)
    if len(found) <= _MOST_SENTENCES:
        return tuple(found)
    rest = len(found) - _MOST_SENTENCES
    return (*found[:_MOST_SENTENCES], f"{rest} more can be read from the table.")


def _chart(explanation: Explanation) -> Picture:
    strength = np.abs(explanation.effects)
    features = np.sort(np.argsort(-strength.max(axis=0), kind="stable")[:_MOST_FEATURES])
    scores = np.sort(np.argsort(-strength.max(axis=1), kind="stable")[:_MOST_PANELS])
    names = [explanation.features[place] for place in features]
    panels: list[tuple[str, FloatArray]] = [
        (explanation.names[place], explanation.effects[place, features]) for place in scores
    ]
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
        label=f"{caption} {' '.join(_few_sentences(explanation)[:4])}",
        caption=caption,
        keys=_KEYS,
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
