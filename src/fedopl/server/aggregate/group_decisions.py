"""Asks how the learned policy's decisions split over groups, and how well clients support them."""

import math

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.evaluation.description import N_CUTS, Description
from fedopl.results.descriptions import BINARY_CUTS, Descriptions
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.answers import Answers

# A feature is cut at its mean and at the quartiles of a normal distribution, unless it is 0 or 1.
# The real quartiles would need counts that no client has reported.
_QUARTER = 0.6745  # standard deviations


def described(setting: Setting, answers: Answers[Description] | None) -> Descriptions | None:
    """The clients' descriptions; None if no client sent one."""
    return Descriptions(cuts=public_cuts(setting), by_client=dict(answers)) if answers else None


def public_cuts(setting: Setting) -> FloatArray:  # (n_features + 1, n_cuts)
    """The cuts of each feature: round numbers, from its mean and deviation in the mixture."""
    kept = [*range(setting.study.n_features), -1]  # the features among the terms
    of_terms = setting.statistics.standardisation(setting.weights)
    centre, scale = (found[kept] for found in of_terms)
    cuts = np.empty((len(centre), N_CUTS))
    flags = setting.statistics.is_flag(setting.weights)[kept]
    for feature, (middle, spread) in enumerate(zip(centre, scale, strict=True)):
        apart = _QUARTER * spread
        raw = (middle - apart, middle, middle + apart)
        cuts[feature] = BINARY_CUTS if flags[feature] else [_round_number(c, apart) for c in raw]
    return cuts


def _round_number(number: float, apart: float) -> float:
    """The nearest round number; round numbers are no further apart than the cuts.

    Columns of whole numbers, such as ages and counts, are cut at a whole number or between two.
    """
    if apart < 0.5:
        return round(number, 1 - math.floor(math.log10(apart)))
    step = 0.5 if apart < 1 else max(1.0, 10.0 ** (math.floor(math.log10(apart)) - 1))
    return math.floor(number / step + 0.5) * step
