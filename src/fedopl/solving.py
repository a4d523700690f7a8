"""Policies solved from mean squares and products, for one client or for a whole federation."""

import numpy as np

from fedopl import least_squares
from fedopl.arrays import FloatArray
from fedopl.policies.linear import NEVER


def solve_scores(
    grams: FloatArray, products: FloatArray, squares: FloatArray, shares: FloatArray
) -> FloatArray:  # (n_actions, n_columns)
    """CSOAA: regress each action's score on its features, θ_a = argmin mean (Γ̂(a) − φᵀθ)².

    An action with a share of zero, for which nobody has a score, is never chosen.
    """
    n_actions, width = products.shape
    sums = np.empty((n_actions, width + 1, width + 1))
    sums[:, :-1, :-1] = grams
    sums[:, :-1, -1] = sums[:, -1, :-1] = products
    sums[:, -1, -1] = squares
    models = least_squares.ordinary(sums * (shares > 0)[:, None, None])
    parameters = np.column_stack([models.coefficients, models.intercepts])
    parameters[~models.supported] = 0.0
    parameters[~models.supported, -1] = NEVER
    return parameters


def residual_variances(
    grams: FloatArray, products: FloatArray, squares: FloatArray, parameters: FloatArray
) -> FloatArray:  # (n_actions,)
    """Mean (Γ̂(a) − φᵀθ_a)², from the same means."""
    explained = (products * parameters).sum(axis=1)
    fitted = np.einsum("ai,aij,aj->a", parameters, _for_each(grams, len(parameters)), parameters)
    variances: FloatArray = np.maximum(squares - 2 * explained + fitted, 0.0)
    return variances


def _for_each(grams: FloatArray, n_actions: int) -> FloatArray:
    return np.broadcast_to(grams, (n_actions, *grams.shape[1:]))


def solve_pairs(grams: FloatArray, products: FloatArray) -> FloatArray:  # (n_pairs, n_columns)
    """Weighted all pairs: regress which of two actions is better on x, weighted by how much."""
    eigenvalues, vectors = np.linalg.eigh(grams)
    floor = least_squares.RANK_TOLERANCE * eigenvalues.max(axis=-1, keepdims=True)
    spanned = eigenvalues > np.maximum(floor, 0.0)
    inverse = np.divide(1.0, eigenvalues, where=spanned, out=np.zeros_like(eigenvalues))
    loadings = np.einsum("pij,pi->pj", vectors, products) * inverse
    solved: FloatArray = np.einsum("pij,pj->pi", vectors, loadings)
    return solved
