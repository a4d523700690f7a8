"""Fits a function of the other clients' index to a client's own scores: for effects that saturate.

With z_a = θ₋c,aᵀφ, scores less their row's mean are f(z_a) less its mean over actions. The function
f is z itself plus a sum of hinges in z. The fit is shrunk toward z, just as a personal policy is
shrunk toward the policy of all others. So the likelihoods of both can be compared.
"""

from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray, to_eight_digits
from fedopl.solvers.personal_ridge import NO_OTHERS, ShrunkPath, Strengths, shrunk_path

N_KNOTS = 9


@dataclass(frozen=True, eq=False, kw_only=True)
class Bend:
    """f(z) = s·z + Σ_k w_k·max(z − t_k, 0), and its likelihood relative to z itself."""

    knots: FloatArray  # (n_knots,)
    slopes: FloatArray  # (n_knots + 1,)
    evidence: float  # the logarithm of how likely own rows are, beside z itself


def knots_of(index: FloatArray) -> FloatArray:  # (at most N_KNOTS,)
    """Quantiles of `index`, (n_rows, n_compared), over rows and actions."""
    found = np.quantile(index, np.arange(1, N_KNOTS + 1) / (N_KNOTS + 1))
    # On another processor, quantiles that are equal here may differ in their last bits.
    return np.unique(to_eight_digits(found))


class BendSums:
    """Sums over rows of squares and products of index hinges and scores."""

    def __init__(self, knots: FloatArray, unit: float) -> None:
        self.knots, self.unit = knots, unit if unit > 0 else 1.0
        width = len(knots) + 1
        self._gram, self._products = np.zeros((width, width)), np.zeros(width)
        self._squares = self._total = self._rows = 0.0
        self._n_compared = 0

    def add(self, index: FloatArray, scores: FloatArray, weights: FloatArray | None) -> None:
        """Add rows: index and scores of the actions that are compared, (n_rows, n_compared)."""
        own = np.ones(len(index)) if weights is None else weights
        hinges = np.maximum(index[..., None] - self.knots, 0.0)
        columns = np.concatenate([index[..., None], hinges], axis=-1) / self.unit
        columns -= columns.mean(axis=1, keepdims=True)
        left = (scores - index) - (scores - index).mean(axis=1, keepdims=True)
        self._gram += np.einsum("n,nai,naj->ij", own, columns, columns, optimize=True)
        self._products += np.einsum("n,nai,na->i", own, columns, left, optimize=True)
        self._squares += float(own @ (left**2).sum(axis=1))
        self._total, self._rows = self._total + float(own.sum()), self._rows + len(index)
        self._n_compared = index.shape[1]

    def bend(self) -> Bend:
        """The mean of the fitted functions at all strengths, weighted by their likelihoods."""
        path, scale = self._path()
        strengths = Strengths(own=path.log_likelihoods(), others=NO_OTHERS)
        moved = path.mean(strengths.weights)[0] / scale / self.unit
        moved[0] += 1.0
        return Bend(knots=self.knots, slopes=moved, evidence=strengths.evidence)

    def _path(self) -> tuple[ShrunkPath, FloatArray]:
        """The path of fits in standardised columns, with row weights that average to one."""
        per_row = self._rows / self._total if self._total else 0.0
        squares = np.diagonal(self._gram) / max(self._total, 1e-300)
        scale = np.sqrt(np.where(squares > 0, squares, 1.0))
        gram = per_row * self._gram / np.outer(scale, scale)
        products = per_row * (self._products / scale)[None, :]
        nothing = np.zeros_like(products)
        n_values = self._rows * (self._n_compared - 1)
        return shrunk_path(gram, products, per_row * self._squares, nothing, (n_values, 1)), scale
