"""Support: how likely each action was in the logged rows, and how many rows speak for it."""

from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.client.disk.disk_array import slices
from fedopl.client.table.logged_data import LoggedData
from fedopl.messages.evaluation.description import CHANCE_CUTS

_FROM = np.array([-np.inf, *CHANCE_CUTS])[:, None, None]  # where each bin begins
NUMBERS_PER_BLOCK = 1 << 16


@dataclass(frozen=True, eq=False)
class Support:
    """A summary of the propensities: all that is kept of them once rows are scored."""

    chances: FloatArray  # (n_actions, n_chance_bins)  rows by how likely the action was
    effective_rows: FloatArray  # (n_actions,)


class SupportSums:
    """Sums that support is computed from, chunk by chunk."""

    def __init__(self, n_actions: int) -> None:
        self._chances = np.zeros((n_actions, len(CHANCE_CUTS) + 1))
        self._inverse, self._squares = np.zeros(n_actions), np.zeros(n_actions)

    def add(self, data: LoggedData, propensities: FloatArray, rows: slice) -> None:
        """Count and weigh these rows; one whose propensity is not known does not count."""
        known, actions = propensities[rows], data.actions[rows]
        for block in slices(len(known), max(1, NUMBERS_PER_BLOCK // data.n_actions)):
            columns = np.ascontiguousarray(known[block].T)
            above = (columns >= _FROM).sum(axis=2)  # (n_bins, n_actions)
            above[:-1] -= above[1:]
            self._chances += above.T
        logged = known[np.arange(len(known)), actions]
        weights = 1.0 if data.weights is None else data.weights[rows]
        inverse = np.divide(weights, logged, out=np.zeros_like(logged), where=logged > 0)
        self._inverse += np.bincount(actions, inverse, data.n_actions)
        self._squares += np.bincount(actions, inverse**2, data.n_actions)

    def support(self) -> Support:
        """Rows by chance, and (Σw)²/Σw² with w the inverse propensities of those who took each."""
        squares = np.where(self._squares > 0, self._squares, 1.0)
        return Support(self._chances, self._inverse**2 / squares)


def effective_rows(weights: FloatArray, propensities: FloatArray) -> float:
    """(Σw)²/Σw² with w the inverse propensities of those who took an action."""
    known = propensities > 0
    inverse = weights[known] / propensities[known]
    return float(inverse.sum() ** 2 / (inverse**2).sum()) if known.any() else 0.0
