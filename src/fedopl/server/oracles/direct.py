"""`direct`: climb the estimated value itself, from the exact start, and keep only what pays."""

from typing import Any

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.messages.evaluation.policy_values import N_OWN_CANDIDATES, EstimateValues
from fedopl.messages.learning.value_slope import SlopeOfValue
from fedopl.messages.message import RowSplit
from fedopl.policies.kinds import packed
from fedopl.policies.linear import NEVER, LinearPolicy
from fedopl.server.aggregate.evaluation import mixture_estimate
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.oracles import exact
from fedopl.server.oracles.sgd import on_raw_features, on_standardised_features
from fedopl.study.study import Study

# Temperatures relative to how far the start's scores lie apart; each is softer than the next.
TEMPERATURES = (0.5, 0.25, 0.1)
STEPS_EACH = 5
STEP = 0.2  # of the start's own size
SURELY = 2.0  # standard errors by which the value on the rows kept back has to rise
PULL = 0.1  # back to the start, so that noise in the scores is not followed for long


def learn(setting: Setting, conversation: Conversation) -> LinearPolicy:
    """Climb on all folds but the first; accept if the value on the first one rises."""
    start = exact.learn(setting, conversation)
    climbed = _climb(setting, conversation, start)
    return climbed if _pays(setting, conversation, start, climbed) else start


def exchanges(_study: Study) -> int:
    """A slope for every step at most, and the values of where it started and ended."""
    return len(TEMPERATURES) * STEPS_EACH + 1


def _climb(setting: Setting, conversation: Conversation, start: LinearPolicy) -> LinearPolicy:
    study = setting.study
    centre, scale = setting.statistics.standardisation(setting.weights)
    # Without actions that nobody has a score for: their intercepts would swamp every norm.
    usable = start.intercepts > NEVER / 10
    origin = on_standardised_features(np.where(usable[:, None], start.parameters, 0), centre, scale)
    size = float(np.linalg.norm(origin - origin[usable].mean(axis=0))) or 1.0
    spread = size / np.sqrt(study.n_actions)
    current = origin
    for temperature in (share * spread for share in TEMPERATURES):
        for _ in range(STEPS_EACH):
            raw = _raw(current, start, usable, centre, scale)
            slope = _slope(setting, conversation, raw, temperature) / scale
            length = float(np.linalg.norm(slope))
            if length == 0:
                break
            current = current + STEP * size * slope / length - PULL * (current - origin)
    return LinearPolicy(_raw(current, start, usable, centre, scale), study.actions, study.features)


def _raw(
    current: FloatArray,
    start: LinearPolicy,
    usable: BoolArray,
    centre: FloatArray,
    scale: FloatArray,
) -> FloatArray:
    return np.where(usable[:, None], on_raw_features(current, centre, scale), start.parameters)


def _slope(
    setting: Setting, conversation: Conversation, parameters: FloatArray, temperature: float
) -> FloatArray:
    query = SlopeOfValue(temperature=temperature, parameters=parameters)
    return conversation.total(query, setting.weights).gradient


def _pays(
    setting: Setting, conversation: Conversation, start: LinearPolicy, climbed: LinearPolicy
) -> bool:
    fields: dict[str, Any] = packed([start, climbed], setting.study)
    # Slopes are of the other folds, so a rise on this one is not fitted noise.
    query = EstimateValues(split=RowSplit.VALIDATION, **fields)
    answers = conversation.each(query, setting.weights)
    if not answers:
        return False
    contrasts = np.eye(2 + N_OWN_CANDIDATES)
    gain = mixture_estimate(answers, setting.weights, contrasts[1] - contrasts[0])
    value = mixture_estimate(answers, setting.weights, contrasts[1]).value
    conversation.measure(answers.exchange, value=value)
    return gain.value > SURELY * gain.standard_error
