"""How much more values vary than the rows at hand show, where an action was unlikely.

The few rows that took an action against the odds carry most of the variance of its value, because
weights count squared. A sample may have none of them. Then its standard error is far too small, and
its value is wrong. Propensities say how much each row may vary, whether it took the action or not:
σ²·ê/max(ê, clip)², where σ² is the mean squared residual of the rows that took the action.
"""

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.decompositions import eigh
from fedopl.client.rows.chunks import Chunk
from fedopl.client.scoring.cross_fit import Nuisances

# From this propensity on, enough rows take the action to show the variance themselves.
UNLIKELY = 0.1


class NoiseExcess:
    """The expected less the observed variation of scores, for each row."""

    def __init__(self, n_actions: int, clip: float | None) -> None:
        self._clip = clip or 0.0
        self._squares, self._takers = np.zeros(n_actions), np.zeros(n_actions)
        self._expected: list[FloatArray] = []  # (n_rows, n_actions), times σ² of the action
        self._observed: list[FloatArray] = []

    def add(self, chunk: Chunk, nuisances: Nuisances) -> None:
        """Take note of these rows; they are all in memory, and so all there are."""
        data, actions = chunk.data, chunk.data.actions.astype(np.int64)
        row = np.arange(data.n_rows)
        residuals = np.nan_to_num(data.rewards - nuisances.outcome_means[row, actions])
        own, n_actions = chunk.training, len(self._takers)
        self._squares += np.bincount(actions[own], residuals[own] ** 2, n_actions)
        self._takers += np.bincount(actions[own], minlength=n_actions)
        chances = nuisances.propensities
        unlikely = (chances > 0) & (chances < UNLIKELY)  # False where unknown
        safe = np.where(unlikely, np.maximum(chances, self._clip), 1.0)
        self._expected.append(np.where(unlikely, chances / safe**2, 0.0))
        took = actions[:, None] == np.arange(n_actions)
        observed = (residuals[:, None] / safe) ** 2
        self._observed.append(np.where(unlikely & took, observed, 0.0))

    def found(self) -> FloatArray:  # (n_rows, n_actions)
        """Expected less observed squares of what weights add to scores."""
        if not self._expected:
            return np.empty((0, len(self._takers)))
        variances = self._squares / np.maximum(self._takers, 1.0)
        return np.concatenate(self._expected) * variances - np.concatenate(self._observed)


def added_covariances(
    excess: FloatArray, decided: IntArray, weights: FloatArray | None
) -> FloatArray:  # (n_policies, n_policies)
    """What to add to the covariances of policies' values, by their decisions (n_rows, n_policies).

    Only what makes a contrast more uncertain is added: the negative part becomes zero.
    """
    n_rows, n_policies = decided.shape
    weight = np.ones(n_rows) if weights is None else weights
    own = excess[np.arange(n_rows)[:, None], decided] * weight[:, None] ** 2
    found = np.zeros((n_policies, n_policies))
    for first in range(n_policies):
        same = decided == decided[:, first, None]
        found[first] = (own[:, first, None] * same).sum(axis=0)
    sizes, axes = eigh((found + found.T) / 2)
    return np.asarray((axes * np.maximum(sizes, 0.0)) @ axes.T / weight.sum() ** 2)
