"""Asks how the learned policy's decisions split over groups, and how well clients support them."""

import math

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.evaluation.description import N_CUTS, Description
from fedopl.results.descriptions import BINARY_CUTS, Descriptions
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.answers import Answers

# A feature is cut at its mean and one standard deviation to either side, unless it is 0 or 1.
_CUTS_IN_DEVIATIONS = (-1.0, 0.0, 1.0)


def described(setting: Setting, answers: Answers[Description] | None) -> Descriptions | None:
    """What clients reported; None if nobody did."""
    return Descriptions(cuts=public_cuts(setting), by_client=dict(answers)) if answers else None


def public_cuts(setting: Setting) -> FloatArray:  # (n_features + 1, n_cuts)
    """Where features are cut: round numbers near mean and standard deviation in the mixture."""
    centre, scale = setting.statistics.standardisation(setting.weights)
    cuts = np.empty((len(centre), N_CUTS))
    for feature, (middle, spread) in enumerate(zip(centre, scale, strict=True)):
        # Of a feature that is 0 or 1, E[x²] = E[x].
        is_binary = math.isclose(middle**2 + spread**2, middle, rel_tol=1e-9)
        raw = [middle + step * spread for step in _CUTS_IN_DEVIATIONS]
        cuts[feature] = BINARY_CUTS if is_binary else [_round_number(c, spread) for c in raw]
    return cuts


def _round_number(number: float, spread: float) -> float:
    """The number to a tenth of the spread's power of ten."""
    return round(number, 1 - math.floor(math.log10(spread)))
