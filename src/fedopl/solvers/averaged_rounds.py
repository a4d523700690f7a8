"""Rounds of steps by any method: momentum, and several means over rounds, of which one is kept.

`climb` takes such steps up the value of a softened policy.
"""

from collections.abc import Callable

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.estimates import Estimate
from fedopl.policies.linear import NEVER

# Shares of the rounds that are left out of a mean; the mean with the least loss is kept.
LEFT_OUT = (0, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 7 / 8)


class AveragedRounds:
    """Parameters that move from round to round, and their means over the later rounds.

    A single round's parameters carry the noise of their last batches; their average does not
    (Polyak & Juditsky 1992). The number of early rounds to leave out depends on how far the
    parameters had to move. So there are several means, and the mean with the least loss is kept.
    """

    def __init__(self, shape: tuple[int, ...], rounds: int, momentum: float, average: str) -> None:
        self.parameters = np.zeros(shape)  # θ_g
        self._rounds, self._momentum, self._turn = rounds, momentum, 0
        self._velocity = np.zeros(shape)
        self._totals = {first: np.zeros(shape) for first in first_averaged(rounds, average)}

    def move_to(self, found: FloatArray) -> None:
        """End a round with these parameters; momentum as in FedAvgM (Hsu, Qi & Brown 2019)."""
        self._velocity = self._momentum * self._velocity + (found - self.parameters)
        self.parameters = self.parameters + self._velocity
        for first in self._totals:
            if self._turn >= first:
                self._totals[first] += self.parameters
        self._turn += 1

    def mean_after(self, share: float) -> FloatArray:
        """The mean over rounds without the first `share` of them, one of `LEFT_OUT`."""
        first = int(share * self._rounds)
        return np.asarray(self._totals[first] / (self._rounds - first))

    def best(
        self, centre: FloatArray, scale: FloatArray, loss: Callable[[FloatArray], float]
    ) -> FloatArray:
        """The mean with the least loss, as parameters for features that are not standardised."""
        means = (total / (self._rounds - first) for first, total in self._totals.items())
        return min((on_raw_features(mean, centre, scale) for mean in means), key=loss)


def first_averaged(rounds: int, average: str) -> list[int]:
    """The round at which each of the means to choose from begins."""
    if average == "rounds":
        return [rounds // 2]
    return sorted({int(share * rounds) for share in LEFT_OUT} | {rounds - 1})


def on_raw_features(
    parameters: FloatArray, centre: FloatArray, scale: FloatArray
) -> FloatArray:  # (n_actions, n_features + 1)
    """Convert parameters for standardised features to parameters for raw features."""
    raw = parameters / scale
    raw[:, -1] = parameters[:, -1] - raw[:, :-1] @ centre[:-1]
    return raw


def on_standardised_features(
    parameters: FloatArray, centre: FloatArray, scale: FloatArray
) -> FloatArray:  # (n_actions, n_features + 1)
    """Convert parameters for raw features to parameters for standardised features."""
    standardised = parameters * scale
    standardised[:, -1] = parameters[:, -1] + parameters[:, :-1] @ centre[:-1]
    return standardised


# Temperatures relative to the spread of the start's scores; each is softer than the next.
TEMPERATURES = (0.5, 0.25, 0.1)
STEPS_EACH = 5
STEP = 0.2  # of the start's own size
SURELY = 2.0  # standard errors by which the value on the rows kept back has to rise
PULL = 0.1  # back to the start, so that noise in the scores is not followed for long

# The gradient of the softened policy's value, at these parameters and this temperature.
SlopeAt = Callable[[FloatArray, float], FloatArray]


def climb(
    start: FloatArray, centre: FloatArray, scale: FloatArray, slope_at: SlopeAt
) -> FloatArray:  # (n_actions, n_features + 1)
    """The parameters after all steps; an action without a score is still never taken."""
    # Leaves out actions without any score, whose intercepts would dominate every norm.
    usable = start[:, -1] > NEVER / 10
    origin = on_standardised_features(np.where(usable[:, None], start, 0), centre, scale)
    size = float(np.linalg.norm(origin - origin[usable].mean(axis=0))) or 1.0
    spread = size / np.sqrt(len(start))

    def raw(current: FloatArray) -> FloatArray:
        return np.where(usable[:, None], on_raw_features(current, centre, scale), start)

    current = origin
    for temperature in (share * spread for share in TEMPERATURES):
        for _ in range(STEPS_EACH):
            slope = slope_at(raw(current), temperature) / scale
            length = float(np.linalg.norm(slope))
            if length == 0:
                break
            current = current + STEP * size * slope / length - PULL * (current - origin)
    return raw(current)


def surely_rises(gain: Estimate) -> bool:
    """Whether the value on rows kept back from training rises by more than chance."""
    return gain.value > SURELY * gain.standard_error
