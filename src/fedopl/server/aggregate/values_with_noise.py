"""Values whose covariances were found from sums with noise, and what that means for intervals."""

import math
from collections.abc import Iterable

from fedopl.base.arrays import FloatArray
from fedopl.messages.evaluation.policy_values import Values
from fedopl.messages.message import message

# A variance that is off by a share r of itself makes 95 % intervals hold too rarely, as much as one
# that is smaller by 1.2·r² of itself; 97.5 % intervals, by 1.5·r². Where r is large, and variances
# below what noise alone makes are ruled out, less is enough.
_SECOND_ORDER, _LARGEST = 1.5, 0.8


@message
class ValuesWithNoise(Values):
    """Means with noise, and covariances that are right on average but may even be negative.

    No client sends these: the server makes them from `NoisedValues`.
    """

    noise: FloatArray  # (n_candidates, n_candidates), what noise alone adds to covariances
    doubt: float  # the deviation of a contrast's variance, in what noise alone adds to it


def honest_variance(total: float, noises: Iterable[tuple[float, float]]) -> float:
    """A sum of clients' variances, made large enough for intervals to hold.

    `noises` are the parts that noise alone makes, by client, with their `doubt`. What noise makes
    is known; what is beyond it is at least zero, and known up to a deviation.
    """
    parts = list(noises)
    if not parts:
        return total
    found = max(total, math.fsum(noise for noise, _ in parts))
    doubt = math.sqrt(math.fsum((noise * doubt) ** 2 for noise, doubt in parts))
    return found + min(_SECOND_ORDER * doubt**2 / found, _LARGEST * doubt)
