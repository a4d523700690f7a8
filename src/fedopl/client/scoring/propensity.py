"""Propensities ê(x; a) = 1/ŵ(x; a): how likely the logging policy was to take each action."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.errors import DataError, OptionError
from fedopl.client.rows.chunks import Chunk
from fedopl.client.scoring import sklearn_models
from fedopl.client.scoring.propensity_models import Booster, one_step_models
from fedopl.client.table.logged_data import LoggedData
from fedopl.solvers.least_squares import sums_of_others

if TYPE_CHECKING:  # a study is slow to import, and scores of arrays do not need it
    from sklearn.pipeline import Pipeline

    from fedopl.client.rows.study_rows import StudyRows

# Inverse strengths of the ridge penalty on standardised features, like scikit-learn's C. With many
# rows the penalty hardly matters and each fit takes long, so only the lightest penalty is tried.
STRENGTHS = (0.01, 0.1, 1.0)
MANY_ROWS = 20_000
# A logistic model hardly changes with more rows than this, and scikit-learn needs all in memory.
MOST_FITTED = 200_000
# Of more rows than this in memory, some are fitted, then all of them move the model by one step.
# Models are compared on as many.
MOST_STARTED = 50_000
# With fewer rows boosting does not win, with more actions it takes long; whether it might win is
# seen in one fold, by a model of the other folds of so many rows.
FEWEST_BOOSTED, MOST_CLASSES, MOST_TRIED = 150, 10, 20_000
# How far off a sum must be to count as impossible: in standard errors, and as a share of all rows.
SURELY, AT_LEAST = 6.0, 0.05

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
    """Use the known propensities, or cross-fit a model of them."""
    if isinstance(propensity, str):
        if propensity not in PROPENSITIES:
            raise OptionError(
                f"propensity: expected one of {', '.join(PROPENSITIES)} or a scikit-learn "
                f"classifier, came '{propensity}'"
            )
        return PROPENSITIES[propensity](rows, seed)
    classifier = sklearn_models.checked(
        propensity, "propensity", "classifier", ("fit", "predict_proba")
    )
    chosen = type(propensity).__name__
    predict = _of_classifier(rows.sample(MOST_FITTED), rows, classifier, seed)
    return Propensities(of=predict, chosen=chosen, reason=f"{chosen}, as asked")


def _known(rows: LoggedRows, _seed: int = 0) -> Propensities:
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
    """The known propensities; NaN for other actions if only the logged action's is known."""
    data, known = chunk.data, chunk.data.propensities
    if known is not None and known.ndim == 2:
        return known
    values = np.full((data.n_rows, data.n_actions), np.nan)
    values[np.arange(data.n_rows), data.actions] = known
    return values


def _marginal(rows: LoggedRows, _seed: int = 0) -> Propensities:
    """The share of each action in the rows of all other folds; in all folds for held-out rows."""
    others = sums_of_others(rows.weight_by_fold_action[:-1], and_of_all=True)
    total = others.sum(axis=1, keepdims=True)
    shares = np.divide(others, total, out=np.zeros_like(others), where=total > 0)
    return Propensities(
        of=lambda chunk: shares.take(chunk.folds.of_row, axis=0),
        chosen="marginal",
        reason="the share of each action",
    )


def _logistic(rows: LoggedRows, _seed: int = 0) -> Propensities:
    predict = _of_logistic(rows.sample(MOST_FITTED), rows, 1.0)
    reason = "multinomial logistic regression on standardised features, C = 1"
    return Propensities(of=predict, chosen="logistic", reason=reason)


def _boosting(rows: LoggedRows, seed: int) -> Propensities:
    sample = rows.sample(MOST_FITTED)
    predict = _fitted(sample, rows, Booster(sample, seed).fitted)
    reason = "boosted trees, their number chosen on rows kept back in every fold"
    return Propensities(of=predict, chosen="boosting", reason=reason)


def _auto(rows: LoggedRows, seed: int) -> Propensities:
    """Known propensities, or the model with the smallest out-of-fold log loss.

    Boosting has to be better by more than the standard error of the difference. This is to keep
    the simpler model where logging is logistic, or the same for everybody.
    """
    if rows.given.propensities is not None:
        return _known(rows)
    sample = rows.sample(MOST_FITTED if rows.given.is_on_disk else MOST_STARTED)
    tried = _linear_models(sample, rows)
    best, note = min(tried, key=lambda one: one.loss), ""
    n_training = int((~sample.folds.held_out).sum())
    if n_training >= FEWEST_BOOSTED and sample.data.n_actions <= MOST_CLASSES:
        if boosted := _promising_boosting(sample, rows, best, seed):
            tried.append(boosted)
            best = boosted if boosted.surely_beats(best) else best
        else:
            note = "; boosting was no better in one fold"
    compared = ", ".join(f"{one.name} {one.loss:.4f}" for one in tried)
    rule = "least cross-validated log loss"
    if tried[-1].name == "boosting":
        rule += ", boosting only if by more than a standard error"
    return Propensities(
        of=best.predict, chosen=best.name.partition(" ")[0], reason=f"{rule}: {compared}{note}"
    )


PROPENSITIES: dict[str, Callable[[LoggedRows, int], Propensities]] = {
    "auto": _auto,
    "marginal": _marginal,
    "logistic": _logistic,
    "boosting": _boosting,
    "known": _known,
}


# --- choosing --------------------------------------------------------------------------------


class _Tried:
    """A model, and its losses on the actions of rows that it was not fitted to."""

    def __init__(self, name: str, predict: Predict, sample: Chunk) -> None:
        self.name, self.predict, self._sample = name, predict, sample
        self.losses = log_losses(sample, predict(sample))
        self.loss = _mean_and_error(self.losses, sample)[0]

    def surely_beats(self, other: "_Tried") -> bool:
        """Whether it predicts better by more than the standard error of the difference."""
        mean, error = _mean_and_error(other.losses - self.losses, self._sample)
        return mean > error


def _linear_models(sample: Chunk, rows: LoggedRows) -> list[_Tried]:
    """The shares of actions, and logistic models as long as they become better."""
    tried = [_Tried("marginal", _marginal(rows).of, sample)]
    few = sample.data.n_rows <= MANY_ROWS and not rows.given.is_on_disk
    # From the strongest penalty to the lightest. If a lighter one predicts worse, so do the rest.
    for strength in STRENGTHS if few else STRENGTHS[-1:]:
        predict = _of_logistic(sample, rows, strength)
        least = min(one.loss for one in tried)
        tried.append(_Tried(f"logistic (C = {strength:g})", predict, sample))
        if tried[-1].loss >= least:
            break
    return tried


def _promising_boosting(sample: Chunk, rows: LoggedRows, best: _Tried, seed: int) -> _Tried | None:
    """Boosting; None if a model of some other rows predicts the first fold no better."""
    step = -(-sample.data.n_rows // MOST_TRIED)
    fewer = sample.taken(np.arange(0, sample.data.n_rows, step)) if step > 1 else sample
    booster = Booster(fewer, seed)
    # Few rows are fitted, and all of the fold predicted, which costs little and tells more.
    losses = log_losses(sample, _predicted(_fold_models(fewer, booster.fitted, n_parts=1), sample))
    gained = np.where(sample.folds.of_row == 0, best.losses - losses, np.nan)
    if not _mean_and_error(gained, sample)[0] > 0:
        return None
    # If these are all rows, the booster already has the first fold's model.
    most = sample if rows.given.is_on_disk else rows.sample(MOST_FITTED)
    of_all = booster if fewer is most else Booster(most, seed)
    return _Tried("boosting", _fitted(most, rows, of_all.fitted), sample)


def log_losses(chunk: Chunk, values: FloatArray) -> FloatArray:  # (n_rows,)
    """−log ê(X; A) of training rows whose action the model has seen, NaN for all others."""
    data = chunk.data
    logged = values[np.arange(data.n_rows), data.actions]
    seen = (logged > 0) & ~chunk.folds.held_out
    return np.asarray(-np.log(logged, out=np.full(len(logged), np.nan), where=seen))


def _mean_and_error(values: FloatArray, chunk: Chunk) -> tuple[float, float]:
    """The mean of known values, ∞ if there are none, and its standard error by groups."""
    known = np.isfinite(values)
    if not known.any():
        return np.inf, np.inf
    weights = chunk.data.weights_of(known)
    mean = float(np.average(values[known], weights=weights))
    pulls = weights * (values[known] - mean)
    if chunk.data.groups is not None:
        pulls = np.asarray(np.bincount(chunk.data.groups[known], pulls), np.float64)
    return mean, float(np.sqrt((pulls**2).sum()) / weights.sum())


# --- fitting ---------------------------------------------------------------------------------


def logistic_classifier(strength: float, tolerance: float = 1e-4) -> "Pipeline":
    """Multinomial logistic regression on standardised features, with a ridge penalty."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    regression = LogisticRegression(C=strength, tol=tolerance, max_iter=1000)
    return make_pipeline(StandardScaler(), regression)


# Fits a model of the actions of these rows, for this part, with `classes_` and `predict_proba`.
_FitRows = Callable[[BoolArray, int], Any]
# The actions that a fold's model has seen, and the model, if it has seen more than one action.
_FoldModels = list[tuple[IntArray, Any]]


def _of_logistic(sample: Chunk, rows: LoggedRows, strength: float) -> Predict:
    """Class probabilities by logistic models, of all rows where these are in memory."""
    classifier = logistic_classifier(strength)
    if isinstance(rows, Chunk) or rows.given.is_on_disk or rows.given.n_rows <= MOST_STARTED:
        return _of_classifier(sample, rows, classifier, seed=0)
    models = one_step_models(rows.sample(MOST_STARTED), rows.whole, classifier)
    if models is None:
        return _of_classifier(rows.sample(MOST_FITTED), rows, classifier, seed=0)
    return lru_cache(1)(partial(_predicted, [(model.classes_, model) for model in models]))


def _of_classifier(sample: Chunk, rows: LoggedRows, classifier: object, seed: int) -> Predict:
    """Class probabilities by copies of a classifier, one for each fold."""
    data = sample.data

    def fit(others: BoolArray, part: int) -> Any:
        which = sklearn_models.Fit(f"propensity model, fold {part + 1}", [seed, part])
        return sklearn_models.fitted(classifier, data, others, data.actions, which)

    return _fitted(sample, rows, fit)


def _fitted(sample: Chunk, rows: LoggedRows, fit: _FitRows) -> Predict:
    """Class probabilities by models that are fitted to a sample of the rows, or to all."""
    predict = partial(_predicted, _fold_models(sample, fit, sample.folds.n_parts))
    are_all = sample.data.n_rows == rows.given.n_rows and not rows.given.is_on_disk
    # Rows in memory are one chunk, so predictions are made once.
    return lru_cache(1)(predict) if are_all else predict


def _fold_models(chunk: Chunk, fit: _FitRows, n_parts: int) -> _FoldModels:
    """A model of all other folds for each of `n_parts`: folds, then held-out rows."""
    models: _FoldModels = []
    for part in range(n_parts):
        others = chunk.folds.learns_from(part)
        taken: IntArray = np.unique(chunk.data.actions[others])
        model = fit(others, part) if len(taken) > 1 else None
        models.append((taken if model is None else model.classes_, model))
    return models


def _predicted(models: _FoldModels, chunk: Chunk) -> FloatArray:  # (n_rows, n_actions)
    """Each row's class probabilities by the model of its fold; 0 for classes it never saw."""
    data = chunk.data
    values = np.zeros((data.n_rows, data.n_actions))
    for fold, (taken, model) in enumerate(models):
        own = chunk.folds.rows_in(fold)
        predicted = values[own]  # a copy, unless rows are sorted by fold
        if not len(predicted):
            continue
        if model is None:  # all the rows it learns from took one action
            predicted[:, taken] = 1.0
        else:
            where = f"propensity model, fold {fold + 1}"
            predicted[:, taken] = sklearn_models.answers(model, "predict_proba", data, own, where)
        values[own] = predicted
    return values


# --- whether the logged actions can have been taken with the known propensities ------------------

# For every action, Σ 1{A = a}/p over the rows is on average the number of rows. The usual mistake
# is to give the probability of treatment also for those who were not treated.


def contradiction(data: LoggedData) -> str:
    """In words, the action whose propensities contradict how often it was taken; empty if none."""
    # |Σ (1{A = a}/p − 1)| is at most √n standard errors, by Cauchy & Schwarz.
    if data.propensities is None or data.n_rows < SURELY**2:
        return ""
    found = _Sums(data.n_actions, data.n_groups)
    for rows in data.slices():  # no context is read
        groups = data.groups_of(rows)
        found.add(data.actions[rows].astype(np.int64), data.propensities[rows], groups)
    ratios = found.ratios(data.n_rows)
    if _off_by(ratios, found.errors(data.n_rows)).max() <= SURELY:
        return ""
    # What the smallest propensities allow takes as long again, and can only excuse more.
    for rows in data.slices():
        found.add_chances(data.actions[rows].astype(np.int64), data.propensities[rows])
    off = _off_by(ratios, found.errors(data.n_rows))
    worst = int(off.argmax())
    if off[worst] <= SURELY:
        return ""
    advice = "Give each row the probability of the action that was taken, not that of treatment"
    if data.schema is not None and data.schema.known_shares:
        advice = "Correct the numbers that the schema states (action.propensity of the study file)"
    ratio = ratios[worst]
    often = f"{ratio:.1f} times as often" if ratio > 1 else f"only {ratio:.0%} as often"
    return (
        f"propensities: '{data.action_names[worst]}' was taken {often} as its "
        f"propensities say; 1/propensity over its "
        f"{found.taken[worst]:,} rows adds up to {ratio * data.n_rows:,.0f}, and there are "
        f"{data.n_rows:,} rows in all. {advice}"
    )


def _off_by(ratios: FloatArray, errors: FloatArray) -> FloatArray:  # (n_actions,)
    """How many standard errors ratios are from one; 0 for those that are close to it."""
    away = np.abs(ratios - 1)
    return np.where(away < AT_LEAST, 0.0, away / np.maximum(errors, 1e-12))


class _Sums:
    """Σ 1{A = a}/p by action, and how far chance may move it from the number of rows."""

    def __init__(self, n_actions: int, n_groups: int) -> None:
        self.taken: IntArray = np.zeros(n_actions, np.int64)
        self._sums, self._squares = np.zeros(n_actions), np.zeros(n_actions)
        self._least: FloatArray | None = None  # the smallest propensities, if they were added
        self._expected = np.zeros(n_actions)
        self._by_group = np.zeros((n_groups, n_actions))
        self._n_rows = 0

    def add(self, actions: IntArray, known: FloatArray, groups: IntArray | None) -> None:
        """Add these rows."""
        inverse = 1 / _of_taken(actions, known)
        n_actions = len(self.taken)
        self.taken += np.bincount(actions, minlength=n_actions)
        self._sums += np.bincount(actions, inverse, n_actions)
        # Σ (1{A = a}/p − 1)² over all rows. Rows that did not take the action add one each.
        self._squares += np.bincount(actions, inverse * (inverse - 2), n_actions)
        self._n_rows += len(actions)
        if groups is not None:
            np.add.at(self._by_group, (groups, actions), inverse)
            np.add.at(self._by_group, groups, -1.0)

    def add_chances(self, actions: IntArray, known: FloatArray) -> None:
        """Add what the propensities of these rows alone allow, whoever took what."""
        n_actions = len(self.taken)
        if self._least is None:
            self._least = np.ones(n_actions)
        np.minimum.at(self._least, actions, _of_taken(actions, known))
        if known.ndim == 1 and n_actions == 2:  # the rest is the other action's
            known = np.where(actions[:, None] == np.arange(2), known[:, None], 1 - known[:, None])
        if known.ndim == 2:  # the variance of 1{A = a}/p, over those who took it and all others
            self._expected += (1 / np.where(known > 0, known, 1.0) - 1).sum(axis=0)

    def ratios(self, n_rows: int) -> FloatArray:  # (n_actions,)
        """By action, the sum as a share of the rows."""
        return np.where(self.taken > 0, self._sums / n_rows, 1.0)

    def errors(self, n_rows: int) -> FloatArray:  # (n_actions,)
        """Their standard errors, at least what was added of chances.

        Rows with small propensities that did not take the action show in no sum. So the error is
        at least what the smallest propensity among the rows that took the action allows. If
        propensities of all actions are known, it is at least what these imply.
        """
        squares = np.maximum(self._squares + self._n_rows, 0.0)  # unless rounded below it
        if len(self._by_group):
            squares = np.maximum(squares, (self._by_group**2).sum(axis=0))
        if self._least is not None:
            squares = np.maximum.reduce([squares, n_rows / self._least, self._expected])
        return np.sqrt(squares) / n_rows


def _of_taken(actions: IntArray, known: FloatArray) -> FloatArray:  # (n_rows,)
    """The propensity of what each row took."""
    return known if known.ndim == 1 else known[np.arange(len(actions)), actions]
