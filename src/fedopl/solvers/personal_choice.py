"""A client's own choice among candidates, shrunk toward what they are worth to everybody else.

With own values m of all candidates, the covariances Σ of those means over n rows, and others'
values m₋c: if true values lie around the others' as n·r·Σ says, the likelihood of a strength r
follows from d'Σ⁻¹d, where d are the contrasts of m − m₋c, and the best guess is
m₋c + n·r/(1 + n·r)·(m − m₋c). At r = 0 the others choose, and as r grows the client alone.
"""

from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.solvers.personal_ridge import RIDGE_STRENGTHS

# What rounding leaves of a variance that is zero, where candidates decide alike.
_ALIKE = 1e-9


@dataclass(frozen=True, eq=False, kw_only=True)
class ChoicePath:
    """What candidates are worth to a client, between everybody else's values and its own."""

    own: FloatArray  # (n_candidates,)
    covariances: FloatArray  # (n_candidates, n_candidates): of these means
    n_rows: float
    others: FloatArray  # (n_candidates,)

    def at(self, strength: float) -> FloatArray:  # (n_candidates,)
        """The values at this strength; the client's own, if it is infinite."""
        grown = self.n_rows * strength
        share = grown / (1 + grown) if np.isfinite(grown) else 1.0
        return np.asarray(self.others + share * (self.own - self.others))

    def mean(self, weights: FloatArray) -> FloatArray:  # (n_candidates,)
        """The mean of the values at the public strengths, by these weights."""
        grown = self.n_rows * RIDGE_STRENGTHS
        share = float(weights @ (grown / (1 + grown)))
        return np.asarray(self.others + share * (self.own - self.others))

    def log_likelihoods(self) -> FloatArray:  # (n_strengths,)
        """Of each of the public strengths, less that of none."""
        n_contrasts, distance = self._distance()
        grown = self.n_rows * RIDGE_STRENGTHS
        return np.asarray(0.5 * (distance * grown / (1 + grown) - n_contrasts * np.log1p(grown)))

    def _distance(self) -> tuple[int, float]:
        """How many contrasts of candidates there are, and d'Σ⁻¹d; alike candidates are one."""
        contrasts = np.eye(len(self.own)) - 1 / len(self.own)
        variances, directions = np.linalg.eigh(contrasts @ self.covariances @ contrasts)
        apart = variances > _ALIKE * max(float(np.diagonal(self.covariances).max()), 1e-300)
        if not apart.any():
            return 0, 0.0
        moved = (self.own - self.others) @ directions[:, apart]
        return int(apart.sum()), float((moved**2 / variances[apart]).sum())
