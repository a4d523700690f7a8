"""Values whose covariances come from noisy sums, and the correction that their intervals need."""

import math
from collections.abc import Iterable

from fedopl.base.arrays import FloatArray
from fedopl.messages.evaluation.policy_values import Values
from fedopl.messages.message import message

# If the relative error of a variance is r, 95 % intervals hold too rarely: as if the variance were
# smaller by a share 1.2·r². For 97.5 % intervals the share is 1.5·r². If r is large, less is
# enough, because variances below that of noise alone are ruled out.
_SECOND_ORDER, _LARGEST = 1.5, 0.8


@message
class ValuesWithNoise(Values):
    """Noisy means, and covariances that are right on average but may even be negative.

    No client sends these: the server makes them from `NoisedValues`.
    """

    noise: FloatArray  # (n_candidates, n_candidates), what noise alone adds to covariances
    doubt: float  # standard deviation of a contrast's variance, as a multiple of its noise part

    def variance(self, contrast: FloatArray) -> float:
        """The variance, which may be negative; `honest_variance` corrects the sum over clients."""
        return float(contrast @ self.covariances @ contrast)


def honest_variance(total: float, noises: Iterable[tuple[float, float]]) -> float:
    """The sum of clients' variances, increased enough for intervals to hold.

    `noises` has for each client the part of the variance that comes from noise alone, and its
    `doubt`. The part from noise is known. The rest is at least zero, and is itself an estimate with
    an error.
    """
    parts = list(noises)
    if not parts:
        return total
    found = max(total, math.fsum(noise for noise, _ in parts))
    doubt = math.sqrt(math.fsum((noise * doubt) ** 2 for noise, doubt in parts))
    return found + min(_SECOND_ORDER * doubt**2 / found, _LARGEST * doubt)
