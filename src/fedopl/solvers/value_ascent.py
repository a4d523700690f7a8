"""Maximises the estimated value itself, from the exact start; any function may give the slope."""

from collections.abc import Callable

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.estimates import Estimate
from fedopl.policies.linear import NEVER
from fedopl.solvers.averaged_rounds import on_raw_features, on_standardised_features

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
