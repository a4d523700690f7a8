"""Whether nuisance models fit: what richer ones would change, balance, and single rows.

A value is right if outcome models or propensities are right, and wrong where both are too simple.
Let h(x; a) be what a richer model still finds in the residuals of the rows that took a. Then the
value of giving everybody a moves by the mean of h·(1 − 1{A=a}/ê). If ê is right, this is nothing
but chance. If h makes up for what was missed, it is the error of the value (Hausman 1978).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.scoring.cross_fit import Nuisances
from fedopl.client.scoring.values import joint_estimate
from fedopl.client.table.logged_data import LoggedData
from fedopl.messages.evaluation.model_fit import FIT_NUMBERS
from fedopl.solvers import least_squares

# This many rows are enough, so the cost of a richer model does not grow with the rows.
MOST_FITTED_ROWS = 10_000
KNOTS = (-1.0, 0.0, 1.0)  # in standard deviations about the mean
MOST_COLUMNS = 80  # of the richer model
FARTHEST = 4.0  # in standard deviations, so that a single value does not bend a model
TRIMMED_AT = 0.05  # the propensity for testing whether smaller ones matter


@dataclass(frozen=True, eq=False, kw_only=True)
class FitNumbers:
    """By action, how well models fit the training rows; NaN where there is nothing to say."""

    numbers: FloatArray  # (n_actions, n_numbers)  see FIT_NUMBERS
    imbalance: FloatArray  # (2, n_actions, n_features + 1)  of features and of their squares

    def of(self, name: str) -> FloatArray:  # (n_actions,)
        """One of the numbers, for every action."""
        return np.asarray(self.numbers[:, FIT_NUMBERS.index(name)])


NOTHING_FITTED = FitNumbers(numbers=np.empty((0, len(FIT_NUMBERS))), imbalance=np.empty((2, 0, 0)))


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedRows:
    """Some training rows with the predictions of models."""

    contexts: FloatArray  # (n_rows, n_features)
    actions: IntArray  # (n_rows,)
    rewards: FloatArray  # (n_rows,)
    weights: FloatArray  # (n_rows,)
    groups: IntArray | None  # (n_rows,)
    folds: IntArray  # (n_rows,)
    means: FloatArray  # (n_rows, n_actions)
    propensities: FloatArray  # (n_rows, n_actions)

    @classmethod
    def of(cls, data: LoggedData, nuisances: Nuisances, rows: slice) -> "FittedRows":
        """These rows, out of all for which nuisances were predicted."""
        return cls(
            contexts=data.contexts[rows],
            actions=data.actions[rows].astype(np.int64),
            rewards=data.rewards[rows],
            weights=data.weights_of(rows),
            groups=data.groups_of(rows),
            folds=nuisances.folds[rows].astype(np.int64),
            means=nuisances.outcome_means[rows],
            propensities=nuisances.propensities[rows],
        )

    def spread(self, most: int) -> "FittedRows":
        """Evenly spread rows of these, at most `most`."""
        step = -(-len(self.actions) // most)
        return self if step <= 1 else self.taken(slice(None, None, step))

    def taken(self, rows: slice | IntArray) -> "FittedRows":
        """These rows, in this order."""
        own: dict[str, Any] = {n: None if a is None else a[rows] for n, a in vars(self).items()}
        return FittedRows(**own)


def sampled_rows(counts: Sequence[int]) -> list[slice]:  # of each chunk
    """Evenly spread training rows, given how many each chunk has: every row, or fewer of all."""
    steps, step, n_before, kept = [], 1, 0, list[int]()
    for count in counts:
        while sum(kept) + count / step > 2 * MOST_FITTED_ROWS:
            kept = [-(-own // 2) for own in kept]
            step *= 2
        steps.append((-n_before % step, count))
        kept.append(len(range(-n_before % step, count, step)))
        n_before += count
    return [slice(start, count, step) for start, count in steps]


def joined_rows(parts: Sequence[FittedRows]) -> FittedRows:
    """All these rows."""
    if len(parts) == 1:
        return parts[0]
    together: dict[str, Any] = {
        name: None if array is None else np.concatenate([vars(part)[name] for part in parts])
        for name, array in vars(parts[0]).items()
    }
    return FittedRows(**together)


def fit_numbers(rows: FittedRows) -> FitNumbers:
    """How well the models fit these rows, by action."""
    n_actions = rows.means.shape[1]
    standard = standardised(rows)
    balanced = [_Columns.of(columns, rows.weights) for columns in (standard, standard**2)]
    is_binary = _is_binary(standard)
    richer = _richer(rows, _basis(standard))
    numbers = np.full((n_actions, len(FIT_NUMBERS)), np.nan)
    imbalance = np.full((2, n_actions, standard.shape[1] + 1), np.nan)
    for action in range(n_actions):
        inverse, residuals = of_takers(rows, action)
        if not inverse.any():
            continue
        numbers[action] = _numbers(rows, action, inverse, residuals, richer[:, action])
        imbalance[:, action] = _imbalance(rows.weights, balanced, inverse)
        imbalance[1, action, :-1][is_binary] = 0.0  # the square of a binary feature says the same
    return FitNumbers(numbers=numbers, imbalance=imbalance)


def of_takers(rows: FittedRows, action: int) -> tuple[FloatArray, FloatArray]:
    """1/ê and Y − μ̂ of the rows that took the action and have a score; zero elsewhere."""
    chances = rows.propensities[:, action]
    residuals = rows.rewards - rows.means[:, action]
    counted = (rows.actions == action) & (chances > 0) & np.isfinite(residuals)
    inverse = np.divide(1.0, chances, out=np.zeros_like(chances), where=counted)
    return inverse, np.where(counted, residuals, 0.0)


def _numbers(
    rows: FittedRows, action: int, inverse: FloatArray, residuals: FloatArray, richer: FloatArray
) -> list[float]:
    """The numbers, in the order of FIT_NUMBERS."""
    weights, took = rows.weights, inverse > 0
    scores = rows.means[:, action] + inverse * residuals
    delta = richer * (1 - inverse)
    trimming = (np.minimum(inverse, 1 / TRIMMED_AT) - inverse) * residuals
    moved, moved_variance = _mean(rows, delta)
    trimmed, trimmed_variance = _mean(rows, trimming)
    share = weights * inverse / (weights * inverse).sum()
    before = float(weights @ residuals**2)
    left = float(weights[took] @ (residuals - richer)[took] ** 2)
    return [
        min(_kish(weights * inverse), _kish(weights * delta)),
        moved,
        moved_variance,
        1 - left / before if before > 0 else 0.0,
        trimmed,
        trimmed_variance,
        float(share.max()),
        _largest_influence(rows, scores),
    ]


def _kish(pulls: FloatArray) -> float:
    """(Σ|u|)²/Σu²: how many rows a sum effectively rests on."""
    total, squares = np.abs(pulls).sum(), (pulls**2).sum()
    return float(total**2 / squares) if squares > 0 else 0.0


def _mean(rows: FittedRows, values: FloatArray) -> tuple[float, float]:
    """A mean over the rows, and its variance."""
    found = joint_estimate(values[:, None], rows.weights, rows.groups)
    if found is None:
        return np.nan, np.nan
    return found.first_column[2], found.first_column[3]


def _largest_influence(rows: FittedRows, scores: FloatArray) -> float:
    """How far the mean score moves without the most influential row, in standard errors."""
    known = np.isfinite(scores)
    weights, scores = rows.weights[known], scores[known]
    pulls = np.abs(weights * (scores - np.average(scores, weights=weights)))
    size = float(np.sqrt((pulls**2).sum()))
    return float(pulls.max()) / size if size > 0 else 0.0


# --- balance ---------------------------------------------------------------------------------


def standardised(rows: FittedRows) -> FloatArray:  # (n_rows, n_features)
    """The features less their means, in standard deviations; a constant becomes zero."""
    centred = rows.contexts - np.average(rows.contexts, axis=0, weights=rows.weights)
    scale = np.sqrt(np.average(centred**2, axis=0, weights=rows.weights))
    tiny = scale <= 1e-12 * np.abs(rows.contexts).max(axis=0, initial=0.0)
    return np.clip(centred / np.where(tiny, np.inf, scale), -FARTHEST, FARTHEST)


class _Columns(NamedTuple):
    """Features, or their squares, and how they are spread over all rows."""

    values: FloatArray  # (n_rows, n_features)
    mean: FloatArray  # (n_features,)
    scale: FloatArray  # (n_features,)

    @classmethod
    def of(cls, values: FloatArray, weights: FloatArray) -> Self:
        mean = np.average(values, axis=0, weights=weights)
        apart = values - mean
        return cls(values, mean, np.sqrt(np.average(apart**2, axis=0, weights=weights)))


def _imbalance(
    all_weights: FloatArray, balanced: list[_Columns], inverse: FloatArray
) -> FloatArray:  # (2, n_features + 1)
    """How far rows that took an action, weighted by 1/ê, are from all rows, in deviations.

    The last number is how far their weights are from adding up to all rows, as a share.
    """
    weights = all_weights * inverse
    found = np.zeros((2, len(balanced[0].mean) + 1))
    for place, own in enumerate(balanced):
        apart = weights @ own.values / weights.sum() - own.mean
        known = own.scale > 1e-9
        found[place, :-1] = np.divide(apart, own.scale, out=np.zeros_like(apart), where=known)
    found[0, -1] = weights.sum() / all_weights.sum() - 1
    return found


def _is_binary(columns: FloatArray) -> BoolArray:  # (n_columns,)
    low, high = columns.min(axis=0), columns.max(axis=0)
    return np.asarray(((columns == low) | (columns == high)).all(axis=0))


# --- the richer model ------------------------------------------------------------------------


def richer_rest(rows: FittedRows) -> FloatArray:  # (n_rows, n_actions)
    """What hinges and products of two find in the residuals of models, out of fold."""
    return _richer(rows, _basis(standardised(rows)))


def _basis(standard: FloatArray) -> FloatArray:  # (n_rows, n_columns)
    """Features, hinges of numbers, and products of two; fewer if there are many features."""
    numbers = standard[:, ~_is_binary(standard)]
    hinges = [np.maximum(numbers - knot, 0.0) for knot in KNOTS]
    n_features = standard.shape[1]
    first, second = np.triu_indices(n_features, 1)
    if n_features + 3 * numbers.shape[1] > MOST_COLUMNS:
        hinges = hinges[1:2]
    if n_features + 3 * numbers.shape[1] + len(first) > MOST_COLUMNS:
        first, second = first[:0], second[:0]
    return np.hstack([standard, *hinges, standard[:, first] * standard[:, second]])


def _richer(rows: FittedRows, basis: FloatArray) -> FloatArray:  # (n_rows, n_actions)
    """What a ridge regression on the basis finds in residuals, out of fold; zero if nothing."""
    n_actions, n_folds = rows.means.shape[1], int(rows.folds.max()) + 1
    width = basis.shape[1] + 2
    sums = np.zeros((n_folds, n_actions, width, width))
    squared = np.zeros((n_folds, n_actions))
    for action in range(n_actions):
        inverse, residuals = of_takers(rows, action)
        z = np.column_stack([basis, np.ones(len(basis)), residuals])
        for fold in range(n_folds):
            own = (rows.folds == fold) & (inverse > 0)
            sums[fold, action] = (z[own] * rows.weights[own, None]).T @ z[own]
            squared[fold, action] = (rows.weights[own] ** 2).sum()
    others = least_squares.sums_of_others(sums)
    n_effective = least_squares.effective_rows(
        others[..., -2, -2], least_squares.sums_of_others(squared)
    )
    models = least_squares.ridge(others, n_effective)
    found = np.zeros((len(basis), n_actions))
    for fold in range(n_folds):
        own = rows.folds == fold
        found[own] = basis[own] @ models.coefficients[fold].T + models.intercepts[fold]
    return np.nan_to_num(found)
