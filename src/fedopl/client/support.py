"""Support: how likely each action was in the logged rows, and how many rows speak for it."""

from dataclasses import dataclass

import numpy as np

from fedopl.arrays import BoolArray, FloatArray
from fedopl.client.logged_data import LoggedData
from fedopl.wire.vocabulary import CHANCE_CUTS


@dataclass(frozen=True, eq=False)
class Support:
    """What is left of the propensities once rows are scored."""

    chances: FloatArray  # (n_actions, n_chance_bins)  rows by how likely the action was
    effective_rows: FloatArray  # (n_actions,)


def support_of(data: LoggedData, propensities: FloatArray, rows: BoolArray) -> Support:
    """Count and weigh these rows; one whose propensity is not known does not count."""
    chances = np.zeros((data.n_actions, len(CHANCE_CUTS) + 1))
    effective = np.zeros(data.n_actions)
    weights = np.ones(data.n_rows) if data.weights is None else data.weights
    for action, column in enumerate(propensities.T):
        known = column[rows & np.isfinite(column)]
        bins = np.searchsorted(CHANCE_CUTS, known, side="right")
        chances[action] = np.bincount(bins, minlength=chances.shape[1])
        taken = rows & (data.actions == action)
        effective[action] = effective_rows(weights[taken], column[taken])
    return Support(chances, effective)


def effective_rows(weights: FloatArray, propensities: FloatArray) -> float:
    """(Σw)²/Σw² with w the inverse propensities of those who took an action."""
    known = propensities > 0
    inverse = weights[known] / propensities[known]
    return float(inverse.sum() ** 2 / (inverse**2).sum()) if known.any() else 0.0
