"""Steps that are much longer than the other clients': one of them could undo everybody else's.

Lengths are compared as logarithms, and clients with fewer rows, whose steps are noisier, may take
longer ones.
Three clients can only tell what is absurd, and two cannot tell which of them is wrong.
"""

import math
from collections.abc import Mapping

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.message import AnswerType, Query

# Beyond so many robust standard deviations a step is taken for an error, not for a difference.
MOST_DEVIATIONS = 3.0
# Of a normal distribution, the standard deviation by the median absolute one.
BY_MEDIAN_DEVIATION = 1.4826
# Honest clients' steps are at least this different, however alike they happen to be in a round.
LEAST_DEVIATION = float(np.log(1.5))
# Noise goes with one over the root of the rows; but nobody buys a longer step by having hardly any.
MOST_BY_ROWS = 3.0
ENOUGH_TO_COMPARE = 4
# Where three are compared, a step this many times as long as the middle one.
MOST_OF_THREE = 200.0


def outlying_steps(
    query: Query[AnswerType], answers: Mapping[str, AnswerType], rows: Mapping[str, int]
) -> dict[str, str]:
    """Why some clients' answers would move the policy too far, by name."""
    if type(query).step is Query.step:  # moves no policy
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
    """The lengths that are too large beside the others, as multiples of the middle one."""
    lengths = {name: length for name, length in lengths.items() if length > 0}
    if len(lengths) < ENOUGH_TO_COMPARE - 1:
        return {}
    usual, most = _usual_and_most(np.log(list(lengths.values())))
    usual_rows = float(np.median([rows.get(name, 1) for name in lengths]))
    return {
        name: length / usual
        for name, length in lengths.items()
        if length > most * _allowance(usual_rows / rows.get(name, 1))
    }


def _allowance(fewer: float) -> float:
    """How much longer the steps may be of a client with so many times fewer rows than others."""
    return min(max(math.sqrt(fewer), 1.0), MOST_BY_ROWS)


def _usual_and_most(logarithms: FloatArray) -> tuple[float, float]:
    """The length of the middle step, and the largest that is taken for one."""
    middle = float(np.median(logarithms))
    if len(logarithms) < ENOUGH_TO_COMPARE:
        return float(np.exp(middle)), MOST_OF_THREE * float(np.exp(middle))
    deviation = BY_MEDIAN_DEVIATION * float(np.median(np.abs(logarithms - middle)))
    reach = MOST_DEVIATIONS * max(deviation, LEAST_DEVIATION)
    return float(np.exp(middle)), float(np.exp(middle + reach))
