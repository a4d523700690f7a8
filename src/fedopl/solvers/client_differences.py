"""How much clients' regression coefficients differ beyond noise, from their mean squares alone.

Arrays have clients first. One Gram matrix of a client may serve all actions.
"""

import math

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.base.decompositions import eigh
from fedopl.base.one_thread import enough_threads
from fedopl.solvers.least_squares import RANK_TOLERANCE

# Relative to a mean square; below it, the variance of a constant is only rounding.
_ROUNDING = 1e-12
# Weights and the variance that they follow from agree after a few iterations.
STEPS = 3
# Enough that arithmetic outweighs the calls, few enough to stay in a core's cache.
NUMBERS_ADDED_AT_ONCE = 1 << 14


def standard_frames(
    grams: FloatArray, n_rows: FloatArray, *, intercept: bool
) -> FloatArray:  # (n_grams, n_columns, n_columns)
    """Matrices that turn columns into deviations from the overall mean, in standard deviations.

    `grams` is (n_clients, n_grams, n_columns, n_columns), the intercept last, and `n_rows`
    (n_clients, n_grams). Without an intercept nothing is centred, and the intercept's column
    becomes zero.
    """
    total = np.maximum(n_rows.sum(axis=0), 1e-300)
    pooled = np.einsum("cg,cgij->gij", n_rows, grams) / total[:, None, None]
    means = pooled[:, -1, :-1] * intercept
    squares = np.diagonal(pooled, axis1=1, axis2=2)[:, :-1]
    variances = squares - means**2
    varies = variances > _ROUNDING * squares
    inverse = np.where(varies, 1 / np.sqrt(np.where(varies, variances, 1.0)), 0.0)
    frames: FloatArray = np.zeros_like(pooled)
    places = np.arange(inverse.shape[1])
    frames[:, places, places] = inverse
    frames[:, :-1, -1] = -means * inverse
    frames[:, -1, -1] = intercept
    return frames


def variance_between(grams: FloatArray, products: FloatArray, noise: FloatArray) -> float:
    """The variance τ² of clients' coefficients about a common mean; infinite if not estimable.

    By moments, for vectors (DerSimonian & Kacker 2007): with weights w_c, S = Σ_c w_c·G_c and θ̂ =
    S⁻¹ Σ_c w_c·h_c, the distance Q = Σ_c w_c·(θ̂_c − θ̂)ᵀG_c(θ̂_c − θ̂) has the expectation Σ_c
    w_c·s_c·(rank G_c − w_c·tr S⁻¹G_c) + τ²·Σ_c w_c·(tr G_c − w_c·tr S⁻¹G_c²). Weights are 1 / (τ² +
    s_c), with the τ² of the previous iteration. All actions are taken together.

    `grams` is (n_clients, n_grams, p, p), `products` (n_clients, n_actions, p), and `noise`
    (n_clients, n_actions) is s_c, the variance of a mean score, infinite where there is no score.
    """
    explained, ranks = _explained_alone(grams, products)
    traces, squares = np.trace(grams, axis1=2, axis2=3), grams @ grams
    finite = np.where(np.isfinite(noise), noise, 0.0)
    between = 0.0
    for _ in range(STEPS):
        weights = 1 / (between + noise)
        inverse = _inverse(_weighed(weights, grams))
        pulls = np.einsum("ca,cai->ai", weights, products)
        distance = (weights * explained).sum(axis=0)
        distance -= np.einsum("ai,aij,aj->a", pulls, inverse, pulls)
        by_noise = (weights * finite * ranks).sum(axis=0)
        by_noise -= _trace_of(inverse, _weighed(weights**2 * finite, grams))
        sizes = (weights * traces).sum(axis=0)
        told = (sizes - _trace_of(inverse, _weighed(weights**2, squares))).sum()
        # The variance needs two clients with scores of the same action.
        if told <= _ROUNDING * sizes.sum():
            return np.inf
        latest, between = between, max(float((distance - by_noise).sum() / told), 0.0)
        if between == latest:  # mostly zero, where clients are alike: further steps find the same
            break
    return between


def _trace_of(first: FloatArray, second: FloatArray) -> FloatArray:  # (n_actions,)
    """tr(AB), action by action."""
    return np.asarray(np.einsum("aij,aji->a", first, second))


def _explained_alone(
    grams: FloatArray, products: FloatArray
) -> tuple[FloatArray, FloatArray]:  # (n_clients, n_actions), (n_clients, n_grams)
    """hᵀG⁻¹h, what a client's own regression explains, and the rank of its rows."""
    eigenvalues, vectors = eigh(grams)
    spanned = _spanned(eigenvalues)
    loadings = (products[..., None, :] @ vectors)[..., 0, :]
    parts = loadings**2 / np.where(spanned, eigenvalues, np.inf)
    return parts.sum(axis=-1), spanned.sum(axis=-1).astype(np.float64)


def _inverse(matrices: FloatArray) -> FloatArray:  # shaped as matrices
    """Pseudo-inverses of a stack of symmetric matrices."""
    eigenvalues, vectors = eigh(matrices)
    spanned = _spanned(eigenvalues)
    inverse = np.where(spanned, 1 / np.where(spanned, eigenvalues, 1.0), 0.0)
    with enough_threads(vectors.shape[-1] ** 3):
        return np.asarray((vectors * inverse[:, None, :]) @ np.swapaxes(vectors, 1, 2))


def _spanned(eigenvalues: FloatArray) -> BoolArray:
    largest = eigenvalues.max(axis=-1, keepdims=True)
    return np.asarray((eigenvalues > RANK_TOLERANCE * largest) & (largest > 0))


def _weighed(weights: FloatArray, matrices: FloatArray) -> FloatArray:  # (n_actions, p, p)
    """Σ_c w_c(a)·M_c(a), some clients at a time, in their order."""
    shape = weights.shape[1], *matrices.shape[2:]
    at_once = max(1, NUMBERS_ADDED_AT_ONCE // math.prod(shape))
    terms = np.zeros((min(at_once, len(weights)) + 1, *shape))  # what was added so far is the first
    for start in range(0, len(weights), at_once):
        own, each = weights[start : start + at_once], matrices[start : start + at_once]
        some = terms[: len(own) + 1]
        np.multiply(own[:, :, None, None], each, out=some[1:])
        terms[0] = some.sum(axis=0)
    return np.asarray(terms[0])
