"""Propensities ê(x; a) = 1/ŵ(x; a): how likely the logging policy was to take each action."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.errors import DataError, OptionError
from fedopl.client.rows.chunks import Chunk
from fedopl.client.scoring import sklearn_models
from fedopl.client.scoring.known_propensities import contradiction
from fedopl.solvers.least_squares import sums_of_others

if TYPE_CHECKING:  # a study is slow to import, and scores of arrays need none
    from sklearn.pipeline import Pipeline

    from fedopl.client.rows.study_rows import StudyRows

# Inverse strengths of the ridge penalty on standardised features, as scikit-learn's C. With many
# rows the penalty hardly matters and each fit is long, so only the lightest is tried.
STRENGTHS = (0.01, 0.1, 1.0)
MANY_ROWS = 20_000
# A logistic model hardly changes with more rows than this, and scikit-learn wants all in memory.
MOST_FITTED = 200_000

Predict = Callable[[Chunk], FloatArray]  # (n_rows, n_actions)
# The rows that propensities are fitted to: one chunk, or all chunks of a study.
LoggedRows: TypeAlias = "Chunk | StudyRows"


class ImpossiblePropensitiesError(DataError):
    """Known propensities with which the actions cannot have been taken."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Propensities:
    """The probability of each action, known or estimated, for any chunk of one client's rows."""

    of: Predict  # (n_rows, n_actions), NaN where not known and not estimated
    chosen: str
    reason: str


def fit_propensities(rows: LoggedRows, propensity: object, seed: int) -> Propensities:
    """Use the propensities that are known, or cross-fit a model of them."""
    if isinstance(propensity, str):
        if propensity not in PROPENSITIES:
            raise OptionError(
                f"propensity: expected one of {', '.join(PROPENSITIES)} or a scikit-learn "
                f"classifier, came '{propensity}'"
            )
        return PROPENSITIES[propensity](rows)
    classifier = sklearn_models.checked(
        propensity, "propensity", "classifier", ("fit", "predict_proba")
    )
    chosen = type(propensity).__name__
    predict = _fitted(rows.sample(MOST_FITTED), rows, classifier, seed)
    return Propensities(of=predict, chosen=chosen, reason=f"{chosen}, as asked")


def _known(rows: LoggedRows) -> Propensities:
    known = rows.given.propensities
    if known is None:
        raise DataError(
            "propensities: propensity='known' was asked for and the data have none; pass them to "
            "LoggedData, or name their column in the schema"
        )
    if against := contradiction(rows.given):
        raise ImpossiblePropensitiesError(against)
    reason = "given with the data" + ("" if known.ndim == 2 else " for the logged action")
    return Propensities(of=_given, chosen="known", reason=reason)


def _given(chunk: Chunk) -> FloatArray:  # (n_rows, n_actions)
    """The known propensities; where only the logged action's is known, the others stay unknown."""
    data, known = chunk.data, chunk.data.propensities
    if known is not None and known.ndim == 2:
        return known
    values = np.full((data.n_rows, data.n_actions), np.nan)
    values[np.arange(data.n_rows), data.actions] = known
    return values


def _marginal(rows: LoggedRows) -> Propensities:
    """The share of each action in the rows of all other folds; in all folds for held-out rows."""
    others = sums_of_others(rows.weight_by_fold_action[:-1], and_of_all=True)
    total = others.sum(axis=1, keepdims=True)
    shares = np.divide(others, total, out=np.zeros_like(others), where=total > 0)
    return Propensities(
        of=lambda chunk: shares.take(chunk.folds.of_row, axis=0),
        chosen="marginal",
        reason="the share of each action",
    )


def _logistic(rows: LoggedRows) -> Propensities:
    predict = _fitted(rows.sample(MOST_FITTED), rows, logistic_classifier(1.0), seed=0)
    reason = "multinomial logistic regression on standardised features, C = 1"
    return Propensities(of=predict, chosen="logistic", reason=reason)


def _auto(rows: LoggedRows) -> Propensities:
    """Known propensities, or the model whose out-of-fold log loss is the least."""
    if rows.given.propensities is not None:
        return _known(rows)
    sample, best = rows.sample(MOST_FITTED), _marginal(rows).of
    losses = {"marginal": log_loss(sample, best(sample))}
    few = sample.data.n_rows <= MANY_ROWS and not rows.given.is_on_disk
    # From the strongest penalty to the lightest; once a lighter one predicts worse, so do the rest.
    for strength in STRENGTHS if few else STRENGTHS[-1:]:
        predict = _fitted(sample, rows, logistic_classifier(strength), seed=0)
        loss = log_loss(sample, predict(sample))
        worse = loss >= min(losses.values())
        losses[f"logistic (C = {strength:g})"] = loss
        if worse:
            break
        best = predict
    chosen = min(losses, key=lambda name: losses[name])
    compared = ", ".join(f"{name} {loss:.4f}" for name, loss in losses.items())
    return Propensities(
        of=best,
        chosen=chosen.partition(" ")[0],
        reason=f"least cross-validated log loss: {compared}",
    )


PROPENSITIES: dict[str, Callable[[LoggedRows], Propensities]] = {
    "auto": _auto,
    "marginal": _marginal,
    "logistic": _logistic,
    "known": _known,
}


def log_loss(chunk: Chunk, values: FloatArray) -> float:
    """The mean of −log ê(X; A), over the rows whose action the model had seen at all."""
    data = chunk.data
    logged = values[np.arange(data.n_rows), data.actions]
    seen = (logged > 0) & ~chunk.folds.held_out
    if not seen.any():
        return np.inf
    weights = None if data.weights is None else data.weights[seen]
    return float(np.average(-np.log(logged[seen]), weights=weights))


def logistic_classifier(strength: float, tolerance: float = 1e-4) -> "Pipeline":
    """Multinomial logistic regression on standardised features, with a ridge penalty."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    regression = LogisticRegression(C=strength, tol=tolerance, max_iter=1000)
    return make_pipeline(StandardScaler(), regression)


def _fitted(sample: Chunk, rows: LoggedRows, classifier: object, seed: int) -> Predict:
    """Class probabilities by classifiers that are fitted to a sample of the rows, or to all."""
    predict = partial(_predicted, _fold_classifiers(sample, classifier, seed))
    are_all = sample.data.n_rows == rows.given.n_rows and not rows.given.is_on_disk
    # Rows in memory are one chunk, for which predictions are made once.
    return lru_cache(1)(predict) if are_all else predict


# The actions that a fold's model has seen, and the model, if it has seen more than one.
_FoldModels = list[tuple[IntArray, Any]]


def _fold_classifiers(chunk: Chunk, classifier: object, seed: int) -> _FoldModels:
    """For each fold, and for held-out rows, a model of the rows of all other folds."""
    data, folds = chunk.data, chunk.folds
    models: _FoldModels = []
    for fold in range(folds.n_parts):
        others = folds.learns_from(fold)
        taken: IntArray = np.unique(data.actions[others])
        model = None
        if len(taken) > 1:
            fit = sklearn_models.Fit(f"propensity model, fold {fold + 1}", [seed, fold])
            model = sklearn_models.fitted(classifier, data, others, data.actions, fit)
            taken = model.classes_
        models.append((taken, model))
    return models


def _predicted(models: _FoldModels, chunk: Chunk) -> FloatArray:  # (n_rows, n_actions)
    """Each row's class probabilities by the model of its fold; 0 for classes it never saw."""
    data = chunk.data
    values = np.zeros((data.n_rows, data.n_actions))
    for fold, (taken, model) in enumerate(models):
        own = chunk.folds.of_row == fold
        if not own.any():
            continue
        chances: FloatArray | float = 1.0  # where the rows it learns from all took one action
        if model is not None:
            where = f"propensity model, fold {fold + 1}"
            chances = sklearn_models.answers(model, "predict_proba", data, own, where)
        values[np.ix_(own, taken)] = chances
    return values
