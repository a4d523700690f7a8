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


class SupportSums:
    """What support is made of, added up over rows that come some at a time."""

    def __init__(self, n_actions: int) -> None:
        self._chances = np.zeros((n_actions, len(CHANCE_CUTS) + 1))
        self._inverse, self._squares = np.zeros(n_actions), np.zeros(n_actions)

    def add(self, data: LoggedData, propensities: FloatArray, rows: BoolArray) -> None:
        """Count and weigh these rows; one whose propensity is not known does not count."""
        weights = np.ones(data.n_rows) if data.weights is None else data.weights
        for action, column in enumerate(propensities.T):
            known = column[rows & np.isfinite(column)]
            bins = np.searchsorted(CHANCE_CUTS, known, side="right")
            self._chances[action] += np.bincount(bins, minlength=self._chances.shape[1])
            taken = rows & (data.actions == action) & (column > 0)
            inverse = weights[taken] / column[taken]
            self._inverse[action] += inverse.sum()
            self._squares[action] += inverse @ inverse

    def support(self) -> Support:
        """Rows by chance, and (Σw)²/Σw² with w the inverse propensities of those who took each."""
        squares = np.where(self._squares > 0, self._squares, 1.0)
        return Support(self._chances, self._inverse**2 / squares)


def effective_rows(weights: FloatArray, propensities: FloatArray) -> float:
    """(Σw)²/Σw² with w the inverse propensities of those who took an action."""
    known = propensities > 0
    inverse = weights[known] / propensities[known]
    return float(inverse.sum() ** 2 / (inverse**2).sum()) if known.any() else 0.0
