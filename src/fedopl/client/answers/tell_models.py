"""A client's own models of actions and of outcomes, to be compared with those of others.

Each model is fitted to all training rows, and again without each of `N_PARTS` parts of them. How
much it changes when a part is left out shows how much of a difference between two clients' models
is noise (the delete-a-group jackknife). Groups of rows are never divided between parts.
"""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.answers.learning import check_terms
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.rows.chunks import Chunk, joined
from fedopl.client.rows.fold_sums import FoldSums, fold_sums
from fedopl.client.rows.folds import Folds
from fedopl.client.rows.study_rows import StudyRows
from fedopl.client.scoring import sklearn_models
from fedopl.client.scoring.propensity import MOST_FITTED, logistic_classifier
from fedopl.client.table.logged_data import LoggedData
from fedopl.client.workspace import Workspace
from fedopl.messages.about_differences import N_PARTS, Models, TellModels
from fedopl.messages.refusal import RefusalCode
from fedopl.solvers import least_squares

# Models are in the order of the part that they were fitted without. The last one has all rows.
WHOLE = N_PARTS
N_REPEATS = N_PARTS + 1
# Least squares needs this many rows for each number, whatever part is left out. There is no
# penalty, because its bias would look like a shift.
ROWS_PER_NUMBER = 2
# Coefficients change little if one part is left out. A loose fit would hide that change.
TOLERANCE = 1e-8
SMALLEST_VARIANCE = 1e-12  # as a share of rewards' mean square; below it, rewards are not random


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnModels:
    """One client's models, its own or another's; the intercept is the last parameter."""

    propensities: FloatArray  # (n_repeats, n_actions, n_features + 1)  scores of a softmax
    outcomes: FloatArray  # (n_repeats, n_actions, n_features + 1)  zero where not supported
    variances: FloatArray  # (n_repeats, n_actions)  zero where not supported
    supported: BoolArray  # (n_actions,)


# Two queries need the models, and fitting takes long.
_FITTED: WeakKeyDictionary[Workspace, OwnModels] = WeakKeyDictionary()


def answer(space: Workspace, _query: TellModels) -> Models:
    """The models; actions that few rows took have none."""
    own = own_models(space)
    return Models(**{name: field.astype(np.float64) for name, field in vars(own).items()})


def own_models(space: Workspace) -> OwnModels:
    """The models of this client's rows, which are fitted once."""
    check_terms(space)
    if space not in _FITTED:
        _FITTED[space] = _fit_models(space)
    return _FITTED[space]


def _fit_models(space: Workspace) -> OwnModels:
    """Models of the actions that enough rows took; refused where there is no such action."""
    rows, n_actions, width = space.study_rows, space.study.n_actions, space.study.n_features + 1
    counts = np.zeros((N_PARTS, n_actions), np.int64)
    for chunk, parts in rows.chunks_and_parts():
        own = parts.of_row[chunk.training], chunk.data.actions[chunk.training]
        np.add.at(counts, own, 1)
    if not counts.any(axis=1).all():  # some part is empty: there are too few groups
        raise RefusedError(RefusalCode.TOO_FEW_ROWS)
    needed = max(space.limits.minimum_cell, 1)
    supported = _supported(counts, width, needed)
    outcomes, variances, mean_square = _outcomes(rows)
    supported &= (variances > SMALLEST_VARIANCE * mean_square).all(axis=0)
    if not supported.any():
        raise RefusedError(RefusalCode.SMALL_CELLS)
    # Propensity scores have as many numbers as outcome models: each action has enough rows for its
    # own.
    if space.study.nuisances.propensity == "marginal" or supported.sum() < 2:
        scores = _shares(rows, supported)
    else:
        scores = _logistic(rows, supported)
    chance = min(needed / 2 / space.n_training, 1 / n_actions)
    return OwnModels(
        propensities=_with_rare_actions(scores, space, supported, chance),
        outcomes=np.where(supported[:, None], outcomes, 0.0),
        variances=np.where(supported, variances, 0.0),
        supported=supported,
    )


def _supported(counts: IntArray, width: int, needed: int) -> BoolArray:  # (n_actions,)
    """Actions with enough rows in each part, and for a fit whatever part is left out."""
    fitted = counts.sum(axis=0) - counts.max(axis=0) >= ROWS_PER_NUMBER * width
    supported: BoolArray = fitted & (counts.min(axis=0) >= needed)
    return supported


def _outcomes(rows: StudyRows) -> tuple[FloatArray, FloatArray, float]:
    """Least squares by action, its residual variances, and the mean square of rewards.

    Variances take degrees of freedom into account.
    """
    sums: FoldSums | None = None
    squares, n_rows = 0.0, 0
    for chunk, parts in rows.chunks_and_parts():
        sums = fold_sums(chunk.data, parts, onto=sums)
        rewards = chunk.data.rewards[chunk.training]
        squares, n_rows = squares + float((rewards**2).sum()), n_rows + len(rewards)
    assert sums is not None  # noqa: S101  (there is a chunk)
    others = least_squares.sums_of_others(sums.sums, and_of_all=True)
    models = least_squares.ordinary(others)
    variances = _variances(sums, others, np.nan_to_num(models.coefficients), models.intercepts)
    models = least_squares.shift_origin(models, sums.origin)
    parameters = np.concatenate([models.coefficients, models.intercepts[..., None]], axis=-1)
    return np.nan_to_num(parameters), variances, squares / n_rows


def _variances(
    sums: FoldSums, others: FloatArray, coefficients: FloatArray, intercepts: FloatArray
) -> FloatArray:  # (n_repeats, n_actions)
    ones = np.ones_like(intercepts)[..., None]
    residual = np.concatenate([-coefficients, -np.nan_to_num(intercepts)[..., None], ones], axis=-1)
    squares = np.einsum("...i,...ij,...j->...", residual, others, residual)
    weight = others[..., -2, -2]
    squared = least_squares.sums_of_others(sums.squared_weights, and_of_all=True)
    rows = least_squares.effective_rows(weight, squared)
    freedom = np.maximum(rows - residual.shape[-1] + 1, 1.0)
    means = np.divide(squares, weight, out=np.zeros_like(weight), where=weight > 0)
    variances: FloatArray = np.maximum(means, 0.0) * rows / freedom
    return variances


def _shares(rows: StudyRows, supported: BoolArray) -> FloatArray:
    """Softmax scores (n_repeats, n_actions, n_features + 1) that are the same in every row."""
    taken = np.zeros((N_REPEATS, rows.given.n_actions))
    for chunk, parts in rows.chunks_and_parts():
        for part in range(N_REPEATS):
            own = parts.learns_from(part) & supported[chunk.data.actions]
            weights = chunk.data.weights_of(own)
            taken[part] += np.bincount(chunk.data.actions[own], weights, len(supported))
    taken = taken[:, supported]
    parameters = np.zeros((N_REPEATS, len(supported), rows.given.n_features + 1))
    parameters[:, supported, -1] = np.log(taken / taken.sum(axis=1, keepdims=True))
    return parameters


def _logistic(rows: StudyRows, supported: BoolArray) -> FloatArray:
    """Softmax scores of the supported actions, from the rows that took one of them.

    Known propensities are not used: all clients' models must be of one kind to be compared. Of rows
    on disk, models are fitted to an evenly spread sample.
    """
    sample, parts = _in_memory(rows)
    learned = [
        parts.learns_from(part) & supported[sample.data.actions] for part in range(N_REPEATS)
    ]
    return np.stack([_logistic_scores(sample.data, own) for own in learned])


def _in_memory(rows: StudyRows) -> tuple[Chunk, Folds]:
    """All rows and their parts; of rows on disk, as many as propensities are fitted to."""
    step = -(-rows.given.n_rows // MOST_FITTED) if rows.given.is_on_disk else 1
    pieces: list[Chunk] = []
    numbers, start = [], 0
    for chunk, parts in rows.chunks_and_parts():
        some = slice(-start % step, None, step)
        start += chunk.data.n_rows
        if step == 1 and start == rows.given.n_rows and not pieces:
            return chunk, parts
        order = np.arange(chunk.data.n_rows)[some]
        pieces.append(chunk.taken(order))
        numbers.append(parts.of_row[some])
    return joined(pieces), parts.with_rows(np.concatenate(numbers))


def _logistic_scores(
    data: LoggedData, rows: BoolArray
) -> FloatArray:  # (n_actions, n_features + 1)
    parameters = np.zeros((data.n_actions, data.n_features + 1))
    classifier = logistic_classifier(1.0, TOLERANCE)
    fit = sklearn_models.Fit("own models", [0])
    model = sklearn_models.fitted(classifier, data, rows, data.actions, fit)
    scaler, regression = model[0], model[-1]
    slopes = regression.coef_ / scaler.scale_
    fitted = np.column_stack([slopes, regression.intercept_ - slopes @ scaler.mean_])
    # For two actions, only the second has scores. Those of the first are zero.
    parameters[regression.classes_[-len(fitted) :]] = fitted
    return parameters


def _with_rare_actions(
    scores: FloatArray, space: Workspace, supported: BoolArray, chance: float
) -> FloatArray:  # shaped as scores
    """Give unsupported actions the propensity they would have if half the needed rows took them.

    The number of rows that took them is not disclosed. A propensity of zero would be infinitely far
    from any other.
    """
    from scipy.special import logsumexp  # here, because it is slow to import

    n_rare = int((~supported).sum())
    if not n_rare:
        return scores
    total = np.zeros(N_REPEATS)
    for chunk, _ in space.study_rows.chunks_and_parts():
        contexts = chunk.data.contexts[chunk.training]
        usual = contexts @ np.swapaxes(scores[..., :-1], -1, -2) + scores[:, None, :, -1]
        total += logsumexp(usual[..., supported], axis=-1).sum(axis=-1)
    middle = total / space.n_training  # (n_repeats,)
    scores = scores.copy()
    scores[:, ~supported, -1] = (middle + np.log(chance / (1 - n_rare * chance)))[:, None]
    return scores
