"""Linear models from sums alone: ordinary least squares, and ridge by generalised cross-validation.

A *sum of squares* here is Σ w·z zᵀ over rows, with z = (x₁ … x_p, 1, y). It holds all that least
squares needs to know, it adds up over folds and over clients, and no row can be read off it. Every
function works on a stack of such sums at once: any leading axes, then (p + 2, p + 2).

Features are standardised inside, so that a penalty means the same for grams and for kilograms. The
coefficients that are returned apply to the features as they were given.
"""

from dataclasses import dataclass, fields, replace

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.decompositions import eigh

# Relative to features of variance one and to rows of average weight one.
PENALTIES = np.logspace(-6, 4, 41)
# Eigenvalues of a correlation matrix below this are directions that the rows do not span.
RANK_TOLERANCE = 1e-11
# Ridge stays clear of interpolation, where generalised cross-validation compares noise with noise.
LARGEST_SHARE_OF_FREEDOM = 0.9
# Two points can be fitted equally well at every penalty: errors this close are the same.
TIE_TOLERANCE = 1e-6
# A stack with more numbers is solved part by part: 32 MB, and some copies are needed.
NUMBERS_AT_ONCE = 1 << 22
PENALTIES_AT_ONCE = 1 << 16  # numbers, so that these stay in a processor's cache


@dataclass(frozen=True, kw_only=True)
class LinearModels:
    """A stack of fitted linear models; a model that had no row to learn from predicts NaN."""

    coefficients: FloatArray  # (..., n_features)
    intercepts: FloatArray  # (...)
    penalties: FloatArray  # (...)

    @property
    def supported(self) -> BoolArray:  # (...)
        """Which models had any row to learn from."""
        return np.isfinite(self.intercepts)


@dataclass(frozen=True, kw_only=True)
class _Standardised:
    """Least squares in the eigenbasis of the features' correlation matrix."""

    weight: FloatArray  # (...)
    means: FloatArray  # (..., n_features)
    scales: FloatArray  # (..., n_features)
    reward_mean: FloatArray  # (...)
    reward_variance: FloatArray  # (...)
    eigenvalues: FloatArray  # (..., n_features)
    eigenvectors: FloatArray  # (..., n_features, n_features)
    loadings: FloatArray  # (..., n_features)  covariance with the reward, in the eigenbasis


def ordinary(sums: FloatArray) -> LinearModels:
    """Ordinary least squares; among several solutions, the smallest in standardised features."""
    if _is_large(sums):
        return stacked_models([ordinary(part) for part in sums])
    return ordinary_of(sums[..., :-1, :-1], sums[..., :-1, -1], sums[..., -1, -1])


def ordinary_of(grams: FloatArray, products: FloatArray, squares: FloatArray) -> LinearModels:
    """Ordinary least squares from Σ w·xxᵀ, Σ w·x·y and Σ w·y² with x = (x₁ … x_p, 1).

    Rewards that share their rows may share one Gram matrix, which is then decomposed only once.
    """
    basis = _standardise(grams, products, squares)
    spanned = basis.eigenvalues > RANK_TOLERANCE * basis.eigenvalues.max(axis=-1, keepdims=True)
    inverse = np.divide(1.0, basis.eigenvalues, where=spanned, out=np.zeros_like(basis.eigenvalues))
    return _models(basis, basis.loadings * inverse, np.zeros_like(basis.reward_mean))


def ridge(sums: FloatArray, effective_rows: FloatArray, *, joint: bool = False) -> LinearModels:
    """Ridge regression; each model's penalty minimises its generalised cross-validation error.

    With `joint`, the models along the last axis are one model with one penalty.
    """
    if _is_large(sums):
        parts = zip(sums, effective_rows, strict=True)
        return stacked_models([ridge(part, rows, joint=joint) for part, rows in parts])
    return ridge_and_errors(sums, effective_rows, joint=joint)[0]


def ridge_and_errors(
    sums: FloatArray, effective_rows: FloatArray, *, joint: bool = False
) -> tuple[LinearModels, FloatArray]:
    """Ridge models as in `ridge`, and their errors (...) by generalised cross-validation."""
    basis = _standardise(sums[..., :-1, :-1], sums[..., :-1, -1], sums[..., -1, -1])
    penalties, errors = _best_penalties(basis, effective_rows, joint=joint)
    loadings = basis.loadings / (basis.eigenvalues + penalties[..., None])
    return _models(basis, loadings, penalties), errors


def ridge_errors(
    grams: FloatArray, products: FloatArray, squares: FloatArray, effective_rows: FloatArray
) -> FloatArray:  # (...)
    """The errors alone, from means: the variance of a row's reward about a model of other rows.

    Rewards that share their rows may share one Gram matrix.
    """
    basis = _standardise(grams, products, squares)
    return _best_penalties(basis, effective_rows, joint=False)[1]


def ridge_along(
    grams: FloatArray, products: FloatArray, penalties: FloatArray
) -> FloatArray:  # (n_penalties, n_models, n_columns)
    """Ridge solutions at each penalty, from mean squares and products; the intercept is last.

    One Gram matrix may be shared by all models.
    """
    # The variance of the reward does not matter here, as long as it is above zero.
    squares = products[..., -1] ** 2 + 1
    basis = _standardise(grams, products, squares)
    penalty = penalties[:, None, None]
    shrunk = basis.eigenvalues + penalty
    # Without a penalty, a feature that does not vary gets no coefficient, as in `ordinary_of`.
    spanned = basis.eigenvalues > RANK_TOLERANCE * basis.eigenvalues.max(axis=-1, keepdims=True)
    loadings = np.zeros(np.broadcast_shapes(shrunk.shape, basis.loadings.shape))
    np.divide(basis.loadings, shrunk, where=spanned | (penalty > 0), out=loadings)
    models = _models(basis, loadings, np.zeros(loadings.shape[:-1]))
    return np.concatenate([models.coefficients, models.intercepts[..., None]], axis=-1)


def ridge_toward_all(sums: FloatArray, squared_weights: FloatArray) -> LinearModels:
    """Ridge regressions along the last axis that shrink toward one model of all of them together.

    A regression with few rows of its own takes its slopes mostly from the others.
    """
    whole, squared = sums.sum(axis=-3), squared_weights.sum(axis=-1)
    everybody = ridge(whole, effective_rows(whole[..., -2, -2], squared))
    rest = sums_of_rest(sums, everybody.coefficients[..., None, :], everybody.intercepts[..., None])
    own = ridge(rest, effective_rows(sums[..., -2, -2], squared_weights))
    return LinearModels(
        coefficients=own.coefficients + everybody.coefficients[..., None, :],
        intercepts=own.intercepts + everybody.intercepts[..., None],
        penalties=own.penalties,
    )


def sums_of_rest(
    sums: FloatArray, coefficients: FloatArray, intercepts: FloatArray
) -> FloatArray:  # shaped as sums
    """The same sums, with the reward replaced by its residuals from these models."""
    shape = np.broadcast_shapes(sums.shape[:-2], intercepts.shape)
    turn = np.broadcast_to(np.eye(sums.shape[-1]), (*shape, *sums.shape[-2:])).copy()
    turn[..., -1, :-2] = -coefficients
    turn[..., -1, -2] = -np.nan_to_num(intercepts)
    return np.asarray(turn @ sums @ np.swapaxes(turn, -1, -2))


def _is_large(sums: FloatArray) -> bool:
    """Whether a stack is solved part by part, as at once it would need many times its memory."""
    return sums.ndim > 3 and sums.size > NUMBERS_AT_ONCE


def stacked_models(parts: list[LinearModels]) -> LinearModels:
    """Several stacks of models joined into one stack."""
    names = (field.name for field in fields(LinearModels))
    return LinearModels(**{name: np.stack([getattr(p, name) for p in parts]) for name in names})


def sums_of_others(parts: FloatArray, *, and_of_all: bool = False) -> FloatArray:
    """For each part along the first axis, the sum of all others; `and_of_all` adds that of all.

    The sum adds what came before to what comes after. It costs as little as the total minus the
    part, and unlike that difference it leaves no trace of the part, not even in the rounding.
    """
    n_parts = len(parts)
    others = np.zeros((n_parts + and_of_all, *parts.shape[1:]))
    np.cumsum(parts[: len(others) - 1], axis=0, out=others[1:])
    after = np.zeros(parts.shape[1:])
    for part in range(n_parts - 1, 0, -1):  # backwards: the sum of all that come after
        after += parts[part]
        others[part - 1] += after
    return others


def effective_rows(weight: FloatArray, squared_weights: FloatArray) -> FloatArray:
    """Kish's (Σw)²/Σw²: the number of rows, if all have the same weight."""
    rows = np.zeros_like(weight)
    return np.asarray(np.divide(weight**2, squared_weights, out=rows, where=squared_weights > 0))


def _standardise(grams: FloatArray, products: FloatArray, squares: FloatArray) -> _Standardised:
    weight = grams[..., -1, -1]
    safe = np.where(weight > 0, weight, 1.0)
    mean, reward_mean = grams[..., -1, :-1] / safe[..., None], products[..., -1] / safe
    covariance = grams[..., :-1, :-1] / safe[..., None, None]
    varies, scales = _spread(np.diagonal(covariance, axis1=-2, axis2=-1), mean)
    covariance -= mean[..., :, None] * mean[..., None, :]
    # A feature that does not vary explains exactly nothing.
    inverse = np.where(varies, 1 / scales, 0.0)
    covariance *= inverse[..., :, None]
    covariance *= inverse[..., None, :]
    eigenvalues, eigenvectors = eigh(covariance)
    reward_varies, reward_scale = _spread(squares / safe, reward_mean)
    moments = products[..., :-1] / safe[..., None] - mean * reward_mean[..., None]
    moments = np.where(reward_varies[..., None], moments * inverse, 0.0)
    return _Standardised(
        weight=np.broadcast_to(weight, reward_mean.shape),
        means=mean,
        scales=scales,
        reward_mean=reward_mean,
        reward_variance=np.where(reward_varies, reward_scale**2, 0.0),
        eigenvalues=np.maximum(eigenvalues, 0.0),
        eigenvectors=eigenvectors,
        loadings=np.einsum("...ij,...i->...j", eigenvectors, moments),
    )


def _spread(square: FloatArray, mean: FloatArray) -> tuple[BoolArray, FloatArray]:
    """Which quantities vary, and their standard deviations, or one for those that are constant.

    A constant has a variance of rounding error only.
    """
    variance = square - mean**2
    varies: BoolArray = variance > 1e-14 * square
    return varies, np.sqrt(np.where(varies, variance, 1.0))


def _best_penalties(
    basis: _Standardised, effective_rows: FloatArray, joint: bool
) -> tuple[FloatArray, FloatArray]:
    """The κ with least RSS(κ) / (1 − freedom(κ)/n)² (Golub, Heath & Wahba 1979), and that least."""
    # Handles as many penalties at once as memory allows; a loop would be slow for small problems.
    at_once = max(1, PENALTIES_AT_ONCE // max(basis.loadings.size, 1))
    steps = range(0, len(PENALTIES), at_once)
    parts = [_losses(basis, PENALTIES[step : step + at_once]) for step in steps]
    freedom, residual = (np.concatenate(found, axis=-1) for found in zip(*parts, strict=True))
    rows = effective_rows[..., None]
    if joint:
        freedom = np.where(rows > 0, freedom, 0.0).sum(axis=-2, keepdims=True)
        residual = residual.sum(axis=-2, keepdims=True)
        rows = rows.sum(axis=-2, keepdims=True)
    share = freedom / np.maximum(rows, 0.5)
    admissible = share <= LARGEST_SHARE_OF_FREEDOM
    admissible[..., -1] = True  # however few rows there are, one penalty is left
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(admissible, residual / (1 - share) ** 2, np.inf)
    # The largest penalty among equals: where the data do not decide, the simpler model, and not the
    # one that rounding happens to favour.
    equals = error <= error.min(axis=-1, keepdims=True) * (1 + TIE_TOLERANCE)
    best = len(PENALTIES) - 1 - np.argmax(equals[..., ::-1], axis=-1)
    least = np.take_along_axis(error, best[..., None], axis=-1)[..., 0]
    shape = basis.weight.shape
    return np.broadcast_to(PENALTIES[best], shape), np.broadcast_to(least, shape)


def _losses(
    basis: _Standardised, penalties: FloatArray
) -> tuple[FloatArray, FloatArray]:  # (..., n_penalties) each
    """Degrees of freedom and the residual sum of squares at each penalty."""
    penalty, eigenvalues = penalties[:, None], basis.eigenvalues[..., None, :]
    shrunk = eigenvalues + penalty
    freedom = 1 + (eigenvalues / shrunk).sum(axis=-1)
    squared = basis.loadings[..., None, :] ** 2
    explained = (squared * (shrunk + penalty) / shrunk**2).sum(axis=-1)
    left = np.maximum(basis.reward_variance[..., None] - explained, 0.0)
    residual = basis.weight[..., None] * left
    return np.broadcast_to(freedom, residual.shape), residual


def _models(basis: _Standardised, loadings: FloatArray, penalties: FloatArray) -> LinearModels:
    standardised = np.einsum("...ij,...j->...i", basis.eigenvectors, loadings)
    coefficients = standardised / basis.scales
    intercepts = basis.reward_mean - (coefficients * basis.means).sum(axis=-1)
    nothing = basis.weight <= 0
    return LinearModels(
        coefficients=np.where(nothing[..., None], 0.0, coefficients),
        intercepts=np.where(nothing, np.nan, intercepts),
        penalties=np.where(nothing, np.nan, penalties),
    )


def shift_origin(models: LinearModels, origin: FloatArray) -> LinearModels:
    """The same models for features and reward measured from zero instead of from `origin`."""
    moved = models.intercepts + origin[-1] - models.coefficients @ origin[:-1]
    return replace(models, intercepts=moved)


def equal_blocks(n_features: int, n_actions: int) -> list[IntArray]:
    """The columns that describe each action, φ(x, a) = x_a: all features cut into equal parts."""
    width = n_features // n_actions
    return [np.arange(action * width, (action + 1) * width) for action in range(n_actions)]


def own_sums(sums: FloatArray, columns: list[IntArray]) -> FloatArray:
    """Each action's own columns, intercept and reward, from sums (..., n_actions, p + 2, p + 2)."""
    last = np.array([sums.shape[-1] - 2, sums.shape[-1] - 1])
    kept = [np.append(own, last) for own in columns]
    parts = [sums[..., a, own[:, None], own] for a, own in enumerate(kept)]
    return np.stack(parts, axis=-3)


def widened(models: LinearModels, columns: list[IntArray], n_features: int) -> LinearModels:
    """Models on each action's own columns, widened to models on all columns."""
    own = np.concatenate([models.coefficients, models.intercepts[..., None]], axis=-1)
    return replace(models, coefficients=widen(own, columns, n_features)[..., :-1])


def narrow(
    parameters: FloatArray, columns: list[IntArray] | None
) -> FloatArray:  # (n_actions, n_columns)
    """Parameters on all columns, as parameters on each action's own; the intercept stays last."""
    if columns is None:
        return parameters
    own = [parameters[action, mine] for action, mine in enumerate(columns)]
    return np.column_stack([np.stack(own), parameters[:, -1]])


def widen(
    parameters: FloatArray, columns: list[IntArray] | None, n_features: int
) -> FloatArray:  # (..., n_actions, n_features + 1)
    """Parameters on each action's own columns, the intercept last, as parameters on all columns."""
    if columns is None:
        return parameters
    wide = np.zeros((*parameters.shape[:-1], n_features + 1))
    for action, own in enumerate(columns):
        wide[..., action, own] = parameters[..., action, :-1]
    wide[..., -1] = parameters[..., -1]
    return wide
