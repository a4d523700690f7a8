"""A function of everybody else's index, fitted to a client's own scores: for effects that saturate.

With z_a = θ₋c,aᵀφ, scores less their row's mean are f(z_a) less its mean over actions, where f is z
itself and a sum of hinges in it. Shrunk toward z, as a personal policy is toward everybody else's:
the likelihoods of both can be compared.
"""

from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.solvers.personal_ridge import NO_OTHERS, ShrunkPath, Strengths, shrunk_path

N_KNOTS = 9


@dataclass(frozen=True, eq=False, kw_only=True)
class Bend:
    """f(z) = s·z + Σ_k w_k·max(z − t_k, 0), and how likely it is beside z itself."""

    knots: FloatArray  # (n_knots,)
    slopes: FloatArray  # (n_knots + 1,)
    evidence: float  # the logarithm of how likely own rows are, beside z itself


def knots_of(index: FloatArray) -> FloatArray:  # (at most N_KNOTS,)
    """Quantiles of the index over rows and actions, (n_rows, n_compared)."""
    return np.unique(np.quantile(index, np.arange(1, N_KNOTS + 1) / (N_KNOTS + 1)))


class BendSums:
    """Sums over rows of squares and products of hinges of the index and of scores."""

    def __init__(self, knots: FloatArray, unit: float) -> None:
        self.knots, self.unit = knots, unit if unit > 0 else 1.0
        width = len(knots) + 1
        self._gram, self._products = np.zeros((width, width)), np.zeros(width)
        self._squares = self._total = self._rows = 0.0
        self._n_compared = 0

    def add(self, index: FloatArray, scores: FloatArray, weights: FloatArray | None) -> None:
        """Add rows: the index and scores of actions that are compared, (n_rows, n_compared)."""
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
        """The mean of the functions at all strengths, by how likely those are."""
        path, scale = self._path()
        strengths = Strengths(own=path.log_likelihoods(), others=NO_OTHERS)
        moved = path.mean(strengths.weights)[0] / scale / self.unit
        moved[0] += 1.0
        return Bend(knots=self.knots, slopes=moved, evidence=strengths.evidence)

    def _path(self) -> tuple[ShrunkPath, FloatArray]:
        """In standardised columns, with rows that count as many as there are."""
        per_row = self._rows / self._total if self._total else 0.0
        squares = np.diagonal(self._gram) / max(self._total, 1e-300)
        scale = np.sqrt(np.where(squares > 0, squares, 1.0))
        gram = per_row * self._gram / np.outer(scale, scale)
        products = per_row * (self._products / scale)[None, :]
        nothing = np.zeros_like(products)
        n_values = self._rows * (self._n_compared - 1)
        return shrunk_path(gram, products, per_row * self._squares, nothing, (n_values, 1)), scale
