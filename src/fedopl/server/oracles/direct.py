"""`direct`: maximise the estimated value itself, starting from the exact solution.

The result is kept only if its value is higher.
"""

from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.evaluation.policy_values import N_OWN_CANDIDATES, EstimateValues
from fedopl.messages.learning.policy_steps import SlopeOfValue
from fedopl.messages.message import RowSplit
from fedopl.policies.kinds import packed
from fedopl.policies.linear import LinearPolicy
from fedopl.server.aggregate.evaluation import mixture_estimate
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.oracles import exact
from fedopl.solvers.averaged_rounds import STEPS_EACH, TEMPERATURES, climb, surely_rises
from fedopl.study.study import Study


def learn(setting: Setting, conversation: Conversation) -> LinearPolicy:
    """Climb on all folds but the first; keep the result if it gains value on the first fold."""
    start = exact.learn(setting, conversation)
    climbed = _climb(setting, conversation, start)
    return climbed if _pays(setting, conversation, start, climbed) else start


def exchanges(_study: Study) -> int:
    """At most one slope for each step, and one exchange for the values at start and end."""
    return len(TEMPERATURES) * STEPS_EACH + 1


def _climb(setting: Setting, conversation: Conversation, start: LinearPolicy) -> LinearPolicy:
    study = setting.study
    centre, scale = setting.statistics.standardisation(setting.weights)

    def slope_at(parameters: FloatArray, temperature: float) -> FloatArray:
        query = SlopeOfValue(temperature=temperature, parameters=parameters)
        return conversation.total(query, setting.weights).gradient

    reached = climb(start.parameters, centre, scale, slope_at)
    return LinearPolicy(reached, study.actions, study.features)


def _pays(
    setting: Setting, conversation: Conversation, start: LinearPolicy, climbed: LinearPolicy
) -> bool:
    fields: dict[str, Any] = packed([start, climbed], setting.study)
    # Slopes come from the other folds, so a higher value on this one is not overfitting.
    query = EstimateValues(split=RowSplit.VALIDATION, **fields)
    answers = conversation.each(query, setting.weights)
    if not answers:
        return False
    contrasts = np.eye(2 + N_OWN_CANDIDATES)
    gain = mixture_estimate(answers, setting.weights, contrasts[1] - contrasts[0])
    value = mixture_estimate(answers, setting.weights, contrasts[1]).value
    conversation.measure(answers.exchange, value=setting.study.reward_sign * value)
    return surely_rises(gain)
