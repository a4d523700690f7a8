"""Linear models from sums with noise of a known size, and steps that mend them.

Everything is in units of the study, in which features, outcomes and what models leave of them are
about one in size. Sums are symmetric noise away from the truth: a diagonal entry of squares by
`deviation`, one beside it by deviation/√2, one of products by `deviation`.
"""

from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray

# Variances that coefficients may have, to choose from by likelihood.
_PRIORS = np.geomspace(1e-3, 10, 25)
_RESIDUAL_VARIANCE = 1.0
_LEAST_VARIANCE = 0.02  # of the mean one, for any direction of features
# Of the noise in squares, added to them where a step is solved for.
_STEP_RIDGE = 0.3
_ROUNDS = 3  # of noise that depends on coefficients and coefficients that depend on it


@dataclass(frozen=True, eq=False, kw_only=True)
class FirstFit:
    """What the first sums tell."""

    parameters: FloatArray  # (n_actions, n_columns)
    square: FloatArray  # (n_columns, n_columns), of all rows, whatever was done
    rows: FloatArray  # (n_actions,), that took each action, about


def first_fit(squares: FloatArray, products: FloatArray, deviation: float) -> FirstFit:
    """Models of each action's outcome, from noisy sums of squares and products by action."""
    n_actions, n_columns = products.shape
    rows = np.maximum(squares[:, -1, -1], 1.0)
    means = _shrunk_means(squares[:, :-1, -1] / rows[:, None], rows, deviation)
    spread = _shrunk_spread(squares, means, rows, deviation)
    shared = np.stack([_square_of(spread, mean) for mean in means]) * rows[:, None, None]
    # An action's own squares count as far as they differ from what all actions share, beyond noise.
    n_free = n_columns + n_columns * (n_columns - 1) / 2
    apart = ((squares - shared) ** 2).sum(axis=(1, 2))
    own = _kept(apart, deviation**2 * n_free)[:, None, None]
    blended = own * squares + (1 - own) * shared
    parameters = [filtered(blended[a], products[a], deviation) for a in range(n_actions)]
    return FirstFit(parameters=np.stack(parameters), square=shared.sum(axis=0), rows=rows)


def _kept(size: FloatArray | float, noise: FloatArray | float) -> FloatArray:
    """The share of something that is kept where so much of its square is noise."""
    return np.maximum(0.0, 1 - noise / np.maximum(size, 1e-300))


def _shrunk_means(means: FloatArray, rows: FloatArray, deviation: float) -> FloatArray:
    """Mean features by action, drawn to those of all as far as noise goes."""
    everybody = rows @ means / rows.sum()
    apart = means - everybody
    noise = means.shape[1] * (deviation**2 / 2) / rows**2
    kept = _kept((apart**2).sum(axis=1), noise)
    drawn: FloatArray = everybody + kept[:, None] * apart
    return drawn


def _shrunk_spread(
    squares: FloatArray, means: FloatArray, rows: FloatArray, deviation: float
) -> FloatArray:  # (n_features, n_features)
    """The covariance of features within actions, drawn to a round one as far as noise goes."""
    n_actions, n_features = means.shape
    within = squares[:, :-1, :-1] - rows[:, None, None] * means[:, :, None] * means[:, None, :]
    found = within.sum(axis=0) / rows.sum()
    round_one = max(float(np.trace(found)) / n_features, 0.05)
    apart = found - round_one * np.eye(n_features)
    n_free = n_features + n_features * (n_features - 1) / 2
    kept = _kept((apart**2).sum(), n_actions * deviation**2 * n_free / rows.sum() ** 2)
    values, vectors = np.linalg.eigh(round_one * np.eye(n_features) + kept * apart)
    values = np.maximum(values, _LEAST_VARIANCE * round_one)
    spread: FloatArray = (vectors * values) @ vectors.T
    return spread


def _square_of(spread: FloatArray, mean: FloatArray) -> FloatArray:  # (n_columns, n_columns)
    """The mean square of features with this covariance and mean, and an intercept."""
    wide = np.append(mean, 1.0)
    square = np.outer(wide, wide)
    square[:-1, :-1] += spread
    return square


def filtered(square: FloatArray, product: FloatArray, deviation: float) -> FloatArray:
    """Ridge regression that knows of the noise; how much it shrinks is chosen by likelihood.

    In the directions of the squares' eigenvectors, a product is g·θ with variance t²g² if
    coefficients have the variance t², and noise: of sampling, σ²g, and of what was added to
    products and squares, v = deviation²(1 + |θ|²/2).
    """
    found, vectors = np.linalg.eigh(square)
    size = np.maximum(found, 0.0)
    turned = vectors.T @ product
    parameters = np.zeros_like(product)
    for _ in range(_ROUNDS):
        added = deviation**2 * (1 + parameters @ parameters / 2)
        noise = added + _RESIDUAL_VARIANCE * size
        variances = _PRIORS[:, None] * size**2 + np.maximum(noise, 1e-12)
        misfits = (np.log(variances) + turned**2 / variances).sum(axis=1)
        best = int(np.argmin(misfits))
        parameters = vectors @ (_PRIORS[best] * size * turned / variances[best])
    return parameters


def stepped(
    parameters: FloatArray, residuals: FloatArray, fit: FirstFit, *, passed: float, noise: float
) -> FloatArray:  # shaped as parameters
    """Parameters after a step along residual sums, of which about so much passed their bound."""
    n_columns = residuals.shape[1]
    ridge = _STEP_RIDGE * noise * np.sqrt(2 * n_columns) * np.eye(n_columns)
    moved: FloatArray = np.linalg.solve(passed * fit.square + ridge, residuals.T).T
    return parameters + moved
