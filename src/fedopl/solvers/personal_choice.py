"""A client's own choice among candidates, shrunk toward their values at all other clients.

Let m be the client's own values of all candidates, Σ the covariances of those means over n rows,
and m₋c the values at the others. The model says that true values scatter around the others' values
with covariance n·r·Σ. Then the likelihood of a strength r follows from d'Σ⁻¹d, where d are the
contrasts of m − m₋c. The best guess is m₋c + n·r/(1 + n·r)·(m − m₋c). At r = 0 the others' values
decide; as r grows, the client's own values do.
"""

from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.decompositions import eigh
from fedopl.solvers.personal_ridge import RIDGE_STRENGTHS

# Where candidates decide alike, a variance is zero but for rounding of this size.
_ALIKE = 1e-9


@dataclass(frozen=True, eq=False, kw_only=True)
class ChoicePath:
    """Candidates' values for a client, between the values at all others and its own."""

    own: FloatArray  # (n_candidates,)
    covariances: FloatArray  # (n_candidates, n_candidates): of these means
    n_rows: float
    others: FloatArray  # (n_candidates,)

    def at(self, strength: float) -> FloatArray:  # (n_candidates,)
        """The values at this strength; at an infinite strength, the client's own values."""
        grown = self.n_rows * strength
        share = grown / (1 + grown) if np.isfinite(grown) else 1.0
        return np.asarray(self.others + share * (self.own - self.others))

    def mean(self, weights: FloatArray) -> FloatArray:  # (n_candidates,)
        """The mean of the values at the public strengths, weighted by `weights`."""
        grown = self.n_rows * RIDGE_STRENGTHS
        share = float(weights @ (grown / (1 + grown)))
        return np.asarray(self.others + share * (self.own - self.others))

    def log_likelihoods(self) -> FloatArray:  # (n_strengths,)
        """The log-likelihood of each public strength, minus that of strength zero."""
        n_contrasts, distance = self._distance()
        grown = self.n_rows * RIDGE_STRENGTHS
        return np.asarray(0.5 * (distance * grown / (1 + grown) - n_contrasts * np.log1p(grown)))

    def _distance(self) -> tuple[int, float]:
        """The number of candidates' contrasts, and d'Σ⁻¹d; equal candidates count as one."""
        contrasts = np.eye(len(self.own)) - 1 / len(self.own)
        variances, directions = eigh(contrasts @ self.covariances @ contrasts)
        apart = variances > _ALIKE * max(float(np.diagonal(self.covariances).max()), 1e-300)
        if not apart.any():
            return 0, 0.0
        moved = (self.own - self.others) @ directions[:, apart]
        return int(apart.sum()), float((moved**2 / variances[apart]).sum())
