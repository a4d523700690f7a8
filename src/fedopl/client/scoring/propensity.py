"""Propensities ê(x; a) = 1/ŵ(x; a): how likely the logging policy was to take each action."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.errors import DataError, OptionError
from fedopl.client.rows.folds import Folds
from fedopl.client.scoring import sklearn_models
from fedopl.client.table.logged_data import LoggedData
from fedopl.solvers.least_squares import sums_of_others

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

# Inverse strengths of the ridge penalty on standardised features, as scikit-learn's C. With many
# rows the penalty hardly matters and each fit is long, so only the lightest is tried.
STRENGTHS = (0.01, 0.1, 1.0)
MANY_ROWS = 20_000


@dataclass(frozen=True, eq=False, kw_only=True)
class Propensities:
    """The probability of each action in each row, known or estimated."""

    values: FloatArray  # (n_rows, n_actions), NaN where not known and not estimated
    chosen: str
    reason: str


def fit_propensities(data: LoggedData, folds: Folds, propensity: object, seed: int) -> Propensities:
    """Use the propensities that are known, or cross-fit a model of them."""
    if isinstance(propensity, str):
        if propensity not in PROPENSITIES:
            raise OptionError(
                f"propensity: expected one of {', '.join(PROPENSITIES)} or a scikit-learn "
                f"classifier, came '{propensity}'"
            )
        return PROPENSITIES[propensity](data, folds)
    classifier = sklearn_models.checked(
        propensity, "propensity", "classifier", ("fit", "predict_proba")
    )
    chosen = type(propensity).__name__
    values = _classified(data, folds, classifier, seed)
    return Propensities(values=values, chosen=chosen, reason=f"{chosen}, as asked")


def _known(data: LoggedData, _folds: Folds) -> Propensities:
    if data.propensities is None:
        raise DataError(
            "propensities: propensity='known' was asked for and the data have none; pass them to "
            "LoggedData, or name their column in the schema"
        )
    if data.propensities.ndim == 2:
        return Propensities(values=data.propensities, chosen="known", reason="given with the data")
    # Only the logged action's is known, and only that is needed: the others stay unknown.
    values = np.full((data.n_rows, data.n_actions), np.nan)
    values[np.arange(data.n_rows), data.actions] = data.propensities
    reason = "given with the data for the logged action"
    return Propensities(values=values, chosen="known", reason=reason)


def _marginal(data: LoggedData, folds: Folds) -> Propensities:
    cells = folds.of_row.astype(np.int64) * data.n_actions + data.actions
    shape = (folds.n_parts, data.n_actions)
    taken = np.bincount(cells, data.weights, folds.n_parts * data.n_actions).reshape(shape)
    learned = taken[: folds.n_folds].astype(np.float64)
    shares = marginal_shares(learned, apart=folds.n_parts > folds.n_folds)
    values = np.take(shares, folds.of_row, axis=0)
    return Propensities(values=values, chosen="marginal", reason="the share of each action")


def _logistic(data: LoggedData, folds: Folds) -> Propensities:
    values = _logistic_values(data, folds, strength=1.0)
    reason = "multinomial logistic regression on standardised features, C = 1"
    return Propensities(values=values, chosen="logistic", reason=reason)


def _auto(data: LoggedData, folds: Folds) -> Propensities:
    """Known propensities, or the model whose out-of-fold log loss is the least."""
    if data.propensities is not None:
        return _known(data, folds)
    best = _marginal(data, folds).values
    losses = {"marginal": log_loss(data, best, folds)}
    # From the strongest penalty to the lightest; once a lighter one predicts worse, so do the rest.
    for strength in STRENGTHS if data.n_rows <= MANY_ROWS else STRENGTHS[-1:]:
        values = _logistic_values(data, folds, strength)
        loss = log_loss(data, values, folds)
        worse = loss >= min(losses.values())
        losses[f"logistic (C = {strength:g})"] = loss
        if worse:
            break
        best = values
    chosen = min(losses, key=lambda name: losses[name])
    compared = ", ".join(f"{name} {loss:.4f}" for name, loss in losses.items())
    return Propensities(
        values=best,
        chosen=chosen.partition(" ")[0],
        reason=f"least cross-validated log loss: {compared}",
    )


PROPENSITIES: dict[str, Callable[[LoggedData, Folds], Propensities]] = {
    "auto": _auto,
    "marginal": _marginal,
    "logistic": _logistic,
    "known": _known,
}


def log_loss(data: LoggedData, values: FloatArray, folds: Folds) -> float:
    """The mean of −log ê(X; A), over the rows whose action the model had seen at all."""
    logged = values[np.arange(data.n_rows), data.actions]
    seen = (logged > 0) & ~folds.set_apart
    if not seen.any():
        return np.inf
    weights = None if data.weights is None else data.weights[seen]
    return float(np.average(-np.log(logged[seen]), weights=weights))


def marginal_shares(taken: FloatArray, *, apart: bool) -> FloatArray:  # (n_parts, n_actions)
    """The share of each action in the rows that each part learns from, given what weight took it.

    `taken` is by fold and action; rows set `apart` are one more part, which learns from all folds.
    """
    others = sums_of_others(taken, and_of_all=apart)
    total = others.sum(axis=1, keepdims=True)
    shares: FloatArray = np.divide(others, total, out=np.zeros_like(others), where=total > 0)
    return shares


def _logistic_values(data: LoggedData, folds: Folds, strength: float) -> FloatArray:
    return _classified(data, folds, logistic_classifier(strength), seed=0)


def logistic_classifier(strength: float, tolerance: float = 1e-4) -> "Pipeline":
    """Multinomial logistic regression on standardised features, with a ridge penalty."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    regression = LogisticRegression(C=strength, tol=tolerance, max_iter=1000)
    return make_pipeline(StandardScaler(), regression)


def _classified(data: LoggedData, folds: Folds, classifier: object, seed: int) -> FloatArray:
    """Each row's class probabilities by a model that never saw its fold."""
    return predicted(fold_classifiers(data, folds, classifier, seed), data, folds)


def fold_classifiers(
    data: LoggedData, folds: Folds, classifier: object, seed: int
) -> list[tuple[IntArray, Any]]:
    """For each part the actions that its models can tell, and the model if there are several."""
    models: list[tuple[IntArray, Any]] = []
    for fold in range(folds.n_parts):
        others = folds.learns_from(fold)
        taken: IntArray = np.unique(data.actions[others])
        model = None
        if len(taken) > 1:
            where = f"propensity model, fold {fold + 1}"
            model = sklearn_models.fitted(
                classifier, data, others, data.actions, where=where, seed=[seed, fold]
            )
            taken = model.classes_
        models.append((taken, model))
    return models


def predicted(
    models: list[tuple[IntArray, Any]], data: LoggedData, folds: Folds
) -> FloatArray:  # (n_rows, n_actions)
    """Each row's class probabilities by the model of its part; 0 for classes it never saw."""
    values = np.zeros((data.n_rows, data.n_actions))
    for fold, (taken, model) in enumerate(models):
        own = folds.of_row == fold
        if not own.any():
            continue
        if model is None:  # nothing to tell apart
            values[np.ix_(own, taken)] = 1.0
            continue
        where = f"propensity model, fold {fold + 1}"
        values[np.ix_(own, taken)] = sklearn_models.answers(
            model, "predict_proba", data, own, where
        )
    return values
