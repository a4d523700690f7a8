"""Standard errors of predicted outcomes, from sums over the rows that took each action.

A linear model of an action's outcomes is known well where rows took it, and hardly where none did:

    se_a(x)² = σ²·b(x)ᵀ(G_a + Ḡ)⁻¹b(x)

with b the terms and a one, G_a = Σ bbᵀ over the rows that took a, Ḡ the mean of bbᵀ over all rows,
and σ² what outcomes vary by about such models. Ḡ counts as one average row more, without which an
action that was never taken in a direction would have no finite error there.
"""

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.decompositions import cholesky, eigh, solve
from fedopl.solvers import least_squares


def prediction_errors(
    sums: FloatArray, squared_weights: FloatArray
) -> FloatArray:  # (n_actions, n_columns, n_columns)
    """Upper triangular R_a with |R_a b(x)| = se_a(x).

    `sums` are Σ w·z zᵀ with z = (b, y) for each action, the outcome last; `squared_weights` are Σ
    w². With weights, G_a counts rows as (Σw)²/Σw² does.
    """
    weight = sums[:, -2, -2]
    n_columns = sums.shape[-1] - 1
    if not weight.sum():
        return np.zeros((len(sums), n_columns, n_columns))
    rows = least_squares.effective_rows(weight, squared_weights)
    safe = np.where(weight > 0, weight, 1.0)[:, None, None]
    means = sums / safe
    mean_gram = sums[..., :-1, :-1].sum(axis=0) / weight.sum()
    white = _whitening(mean_gram)
    deviation = np.sqrt(_noise(means, rows))
    found = [
        _triangular(white, count * own[:-1, :-1]) for count, own in zip(rows, means, strict=True)
    ]
    return np.asarray(deviation * np.stack(found))


def outcome_noise(sums: FloatArray, squared_weights: FloatArray) -> float:
    """σ² from the sums of `prediction_errors`; 0 if no row took any action."""
    weight = sums[:, -2, -2]
    if not weight.sum():
        return 0.0
    rows = least_squares.effective_rows(weight, squared_weights)
    return _noise(sums / np.where(weight > 0, weight, 1.0)[:, None, None], rows)


def _noise(means: FloatArray, rows: FloatArray) -> float:
    """σ²: the error of ridge models on other rows, over all rows that took any action."""
    taken = rows > 0
    grams, products = means[taken, :-1, :-1], means[taken, :-1, -1]
    errors = least_squares.ridge_errors(grams, products, means[taken, -1, -1], rows[taken])
    return float(np.average(errors, weights=rows[taken]))


def _whitening(mean_gram: FloatArray) -> FloatArray:  # (n_spanned, n_columns)
    """W with W Ḡ Wᵀ = I, in the directions that rows span."""
    n_columns = len(mean_gram)
    means, squares = mean_gram[-1, :-1], np.diagonal(mean_gram)[:-1]
    variances = squares - means**2
    varies = variances > 1e-14 * squares
    scales = np.where(varies, 1 / np.sqrt(np.where(varies, variances, 1.0)), 0.0)
    # Standardised first, since means far from zero would leave their terms no digits.
    turn = np.eye(n_columns)
    turn[:-1, :-1] = np.diag(scales)
    turn[:-1, -1] = -scales * means
    eigenvalues, vectors = eigh(turn @ mean_gram @ turn.T)
    spanned = eigenvalues > least_squares.RANK_TOLERANCE * eigenvalues[-1]
    return np.asarray((vectors[:, spanned] / np.sqrt(eigenvalues[spanned])).T @ turn)


def _triangular(white: FloatArray, gram: FloatArray) -> FloatArray:  # (n_columns, n_columns)
    """R with RᵀR = (G + Ḡ)⁻¹; no entry of its diagonal is negative."""
    n_spanned, n_columns = white.shape
    lower = cholesky(np.eye(n_spanned) + white @ gram @ white.T)
    upper = np.linalg.qr(solve(lower, white), mode="r")
    wide = np.zeros((n_columns, n_columns))
    wide[:n_spanned] = np.where(np.diagonal(upper) < 0, -1.0, 1.0)[:, None] * upper
    return wide
