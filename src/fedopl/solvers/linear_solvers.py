"""Policies solved from mean squares and products, for one client or for a whole federation."""

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.base.decompositions import eigh
from fedopl.policies.linear import NEVER
from fedopl.policies.pairwise import action_pairs
from fedopl.solvers import least_squares


def solve_scores(
    grams: FloatArray,
    products: FloatArray,
    squares: FloatArray,
    shares: FloatArray,
    *,
    intercept: bool,
) -> FloatArray:  # (n_actions, n_columns)
    """CSOAA: regress each action's score on its features, θ_a = argmin mean (Γ̂(a) − φᵀθ)².

    The last column is the intercept's; without an intercept, as in the paper's φ(x, a) = x_a, the
    column stays zero. An action with a share of zero, for which no client has a score, is never
    chosen.
    """
    if intercept:
        models = least_squares.ordinary_of(grams, products, squares)
        parameters = np.column_stack([models.coefficients, models.intercepts])
    else:
        parameters = np.zeros_like(products)
        parameters[:, :-1] = solve_through_zero(grams[:, :-1, :-1], products[:, :-1])
    return never_taken(parameters, shares <= 0)


def never_taken(parameters: FloatArray, unknown: BoolArray) -> FloatArray:  # shaped as parameters
    """The same parameters, changed so that an action without any score is never chosen."""
    parameters = np.where(unknown[:, None], 0.0, parameters)
    parameters[unknown, -1] = NEVER
    return parameters


def solve_pairs(
    grams: FloatArray, products: FloatArray, unknown: BoolArray
) -> FloatArray:  # (n_pairs, n_columns)
    """Weighted all pairs: one weighted regression for each pair; actions without a score lose."""
    parameters = solve_through_zero(grams, products)
    for pair, (first, second) in enumerate(action_pairs(len(unknown))):
        if unknown[first] or unknown[second]:
            parameters[pair] = 0.0
            parameters[pair, -1] = 1.0 if unknown[second] else -1.0
    return parameters


def residual_variances(
    grams: FloatArray, products: FloatArray, squares: FloatArray, parameters: FloatArray
) -> FloatArray:  # (n_actions,)
    """Mean (Γ̂(a) − φᵀθ_a)², computed from mean squares and products."""
    explained = (products * parameters).sum(axis=1)
    turned = parameters @ grams[0] if len(grams) == 1 else (parameters[:, None] @ grams)[:, 0]
    left = squares - 2 * explained + (turned * parameters).sum(axis=1)
    return np.asarray(np.maximum(left, 0.0))


def solve_through_zero(grams: FloatArray, products: FloatArray) -> FloatArray:  # shaped as products
    """Least squares from raw mean squares; of all solutions, the smallest in scaled features."""
    squares = np.diagonal(grams, axis1=-2, axis2=-1)
    scales = np.sqrt(np.where(squares > 0, squares, 1.0))
    scaled = grams / (scales[..., :, None] * scales[..., None, :])
    eigenvalues, vectors = eigh(scaled)
    spanned = eigenvalues > least_squares.RANK_TOLERANCE * eigenvalues[..., -1:]
    inverse = np.divide(1.0, eigenvalues, where=spanned, out=np.zeros_like(eigenvalues))
    loadings = np.einsum("...ij,...i->...j", vectors, products / scales) * inverse
    return np.asarray(np.einsum("...ij,...j->...i", vectors, loadings) / scales)
