"""Finds steps that are much longer than other clients': one of them could undo all others.

Lengths are compared on a logarithmic scale. Clients with fewer rows have noisier steps, so theirs
may be longer. Among three clients, only an absurdly long step shows. Of two clients, nobody can say
which one is wrong.
"""

import math
from collections.abc import Mapping

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.message import AnswerType, Query

# A step beyond this many robust standard deviations counts as an error.
MOST_DEVIATIONS = 3.0
# The standard deviation of a normal distribution over its median absolute deviation.
BY_MEDIAN_DEVIATION = 1.4826
# The smallest deviation to assume: honest clients' steps may be more alike by chance in one round.
LEAST_DEVIATION = float(np.log(1.5))
# Noise grows as 1/√rows. This limits how much longer the step of a client with few rows may be.
MOST_BY_ROWS = 3.0
ENOUGH_TO_COMPARE = 4
# If three steps are compared, a step is too long beyond this many times the middle one.
MOST_OF_THREE = 200.0


def outlying_steps(
    query: Query[AnswerType], answers: Mapping[str, AnswerType], rows: Mapping[str, int]
) -> dict[str, str]:
    """By client, why its answer would move the policy too far."""
    if type(query).step is Query.step:  # this query does not move a policy
        return {}
    lengths = {}
    for name, answer in sorted(answers.items()):
        step = query.step(answer)
        if step is not None:
            lengths[name] = float(np.linalg.norm(step))
    return {
        name: f"its step is {times:.1f} times as long as the others'"
        for name, times in outlying_lengths(lengths, rows).items()
    }


def outlying_lengths(lengths: Mapping[str, float], rows: Mapping[str, int]) -> dict[str, float]:
    """The lengths that are too large compared with the others, as multiples of the median."""
    lengths = {name: length for name, length in lengths.items() if length > 0}
    if len(lengths) < ENOUGH_TO_COMPARE - 1:
        return {}
    usual, most = _usual_and_most(np.log(list(lengths.values())))
    usual_rows = float(np.median([rows.get(name, 1) for name in lengths]))
    return {
        name: length / usual
        for name, length in lengths.items()
        if length > most * min(max(math.sqrt(usual_rows / rows.get(name, 1)), 1.0), MOST_BY_ROWS)
    }


def _usual_and_most(logarithms: FloatArray) -> tuple[float, float]:
    """The median length of a step, and the largest length that is accepted."""
    middle = float(np.median(logarithms))
    if len(logarithms) < ENOUGH_TO_COMPARE:
        return float(np.exp(middle)), MOST_OF_THREE * float(np.exp(middle))
    deviation = BY_MEDIAN_DEVIATION * float(np.median(np.abs(logarithms - middle)))
    reach = MOST_DEVIATIONS * max(deviation, LEAST_DEVIATION)
    return float(np.exp(middle)), float(np.exp(middle + reach))
