"""Outcome models μ̂: the reward of each action, learned without the rows it is predicted for.

`StudyOutcomes` are a study's at one client: those of its rows alone, and those with everybody's.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.computed_once import computed_once
from fedopl.base.errors import DataError, OptionError
from fedopl.client.rows.chunks import Chunk
from fedopl.client.rows.fold_sums import FoldSums, fold_sums, predict
from fedopl.client.scoring import sklearn_models
from fedopl.client.scoring.joined_models import (
    BoostedTrees,
    JoinedRegressors,
    StackedOutcomes,
    joined_fit,
)
from fedopl.client.table.logged_data import LoggedData
from fedopl.messages.message import RowSplit
from fedopl.solvers import least_squares
from fedopl.solvers.least_squares import LinearModels
from fedopl.solvers.nested_ridge import FEWEST_FOLDS, of_usable_by_fold, outcome_ridge

if TYPE_CHECKING:  # a study is slow to import, and scores of arrays do not need it
    from fedopl.client.rows.study_rows import StudyRows
    from fedopl.policies.terms import Terms
    from fedopl.study.study import Study

# A description of each named model.
OUTCOMES = {
    "ridge": "one ridge regression per action, its penalty by generalised cross-validation",
    "ols": "one least-squares regression per action",
    "boosting": "boosted trees for each action, weighed with ridge regressions on other folds",
    "block-ridge": "one ridge regression per action on its block of features, φ(x, a) = x_a",
    "block-ols": "one least-squares regression per action on its block of features",
    "shared-ridge": (
        "one ridge regression over the blocks φ(x, a) = x_a, one penalty for all actions"
    ),
}
ON_BLOCKS = ("block-ridge", "block-ols", "shared-ridge")


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcomes:
    """Predicted rewards for any chunk of one client's rows."""

    of: Callable[[Chunk], FloatArray]  # (n_rows, n_actions), NaN where not supported
    supported: BoolArray  # (n_folds or n_folds + 1, n_actions)  whether any row took the action
    chosen: str
    reason: str


def fit_outcomes(chunk: Chunk, outcome: object, seed: int) -> Outcomes:
    """Cross-fit an outcome model, named or plugged in."""
    if not isinstance(outcome, str):
        return _plugged_in(chunk, outcome, seed)
    if outcome not in OUTCOMES:
        raise OptionError(
            f"outcome: expected one of {', '.join(OUTCOMES)} or a scikit-learn regressor, "
            f"came '{outcome}'"
        )
    if outcome == "boosting":
        return _boosted(chunk)
    columns = action_blocks(chunk.data) if outcome in ON_BLOCKS else None
    sums = fold_sums(chunk.data, chunk.folds, columns)
    held_out = chunk.folds.n_parts > chunk.folds.n_folds
    return linear_outcomes(sums, outcome, None, held_out=held_out)


def linear_outcomes(
    sums: FoldSums, outcome: str, rows: "StudyRows | None", *, held_out: bool
) -> Outcomes:
    """For each fold, the models of all others; with held-out rows, also one of all folds.

    For a study's `rows`, sums are over their terms.
    """
    sums = _of_own_features(sums, outcome)
    terms = rows.terms if rows else None
    others = least_squares.sums_of_others(sums.sums, and_of_all=held_out)
    others = of_usable_by_fold(others, terms)
    squared = least_squares.sums_of_others(sums.squared_weights, and_of_all=held_out)
    reason = OUTCOMES[outcome]
    if outcome in ("ols", "block-ols"):
        models = least_squares.ordinary(others)
    else:
        effective = least_squares.effective_rows(others[..., -2, -2], squared)
        if terms is None:
            models = least_squares.ridge(others, effective, joint=outcome == "shared-ridge")
        else:
            models = outcome_ridge(others, effective, terms)
        low, high = np.nanmin(models.penalties), np.nanmax(models.penalties)
        reason += f" ({low:.2g})" if low == high else f" ({low:.2g} to {high:.2g})"
    return _linear(_on_all_features(models, sums), rows, outcome, reason)


def _of_own_features(sums: FoldSums, outcome: str) -> FoldSums:
    """The sums from which this model is solved: of each action's own features, or of all."""
    if outcome not in ON_BLOCKS or sums.columns is not None:
        return sums
    columns = least_squares.equal_blocks(len(sums.origin) - 1, sums.sums.shape[1])
    return replace(sums, sums=least_squares.own_sums(sums.sums, columns), columns=columns)


def _on_all_features(models: LinearModels, sums: FoldSums) -> LinearModels:
    """Models that were solved from these sums, for unchanged rows."""
    if sums.columns is not None:
        models = least_squares.widened(models, sums.columns, len(sums.origin) - 1)
    return least_squares.shift_origin(models, sums.origin)


def pooled_parameters(
    sums: FoldSums, outcome: str, terms: "Terms | None" = None
) -> FloatArray:  # (n_folds + 1, n_actions, n_features + 1)
    """Models of rare actions, which share slopes with all others; the intercept is last.

    NaN where an action has no rows in all folds but one.
    """
    sums = _of_own_features(sums, outcome)
    others = least_squares.sums_of_others(sums.sums, and_of_all=True)
    others = of_usable_by_fold(others, terms)
    squared = least_squares.sums_of_others(sums.squared_weights, and_of_all=True)
    models = _on_all_features(least_squares.ridge_toward_all(others, squared), sums)
    return np.concatenate([models.coefficients, models.intercepts[..., None]], axis=-1)


@dataclass(frozen=True, eq=False)
class GivenModels:
    """Models of the whole federation; all clients in one process get the same.

    An intercept of NaN means that nobody took the action.
    """

    parameters: FloatArray  # (n_parts, n_actions, n_terms + 1), the intercept last

    @computed_once
    def key(self) -> NDArray[np.uint8]:
        """A hash of them."""
        return np.frombuffer(hashlib.sha256(self.parameters.tobytes()).digest(), np.uint8)

    @computed_once
    def linear(self) -> LinearModels:
        """The same, to predict with."""
        return _as_models(self.parameters)

    @computed_once
    def lacking(self) -> BoolArray:  # (n_actions,)
        """The actions without a model somewhere."""
        return np.asarray(np.isnan(self.parameters[..., -1]).any(axis=0))


def federated_outcomes(models: LinearModels, rows: "StudyRows") -> Outcomes:
    """Models of the whole federation."""
    return _linear(models, rows, "federated", "regressions on the rows of all clients")


def _as_models(parameters: FloatArray) -> LinearModels:
    coefficients = parameters[..., :-1]
    return LinearModels(
        coefficients=np.where(np.isnan(coefficients), 0.0, coefficients),
        intercepts=parameters[..., -1],
        penalties=np.zeros(parameters.shape[:2]),
    )


def _linear(models: LinearModels, rows: "StudyRows | None", chosen: str, reason: str) -> Outcomes:
    into_terms = rows.into_terms if rows else None  # workers have it, too, and no study

    def predicted(chunk: Chunk) -> FloatArray:
        # One part at a time, as a row has many terms.
        parts = into_terms.chunks(chunk) if into_terms else [chunk]
        found = [predict(part.data, part.folds, models) for part in parts]
        return found[0] if len(found) == 1 else np.concatenate(found)

    return Outcomes(of=predicted, supported=models.supported, chosen=chosen, reason=reason)


def action_blocks(data: LoggedData) -> list[IntArray]:
    """The columns that describe each action, φ(x, a) = x_a: the contexts cut into equal parts."""
    if data.n_features % data.n_actions:
        raise DataError(
            f"contexts: {data.n_features} features cannot be cut into {data.n_actions} equal "
            "blocks, one for each action; order them by action or use outcome='ridge'"
        )
    return least_squares.equal_blocks(data.n_features, data.n_actions)


def _boosted(chunk: Chunk) -> Outcomes:
    """Boosted trees and ridge regression on all features, weighted by how well they predict."""
    n_folds = chunk.folds.n_folds
    if n_folds < FEWEST_FOLDS:
        raise DataError(
            f"outcome='boosting' needs {FEWEST_FOLDS} folds: one to fit the model, one to weight "
            f"it, one to use it in; came {n_folds}: {chunk.folds.reason}"
        )
    stack = StackedOutcomes(
        (chunk.data.n_features,), regressors=JoinedRegressors(chunk, BoostedTrees)
    )
    every = np.ones(chunk.data.n_actions, np.bool_)
    stacked = stack.stacked(fold_sums(chunk.data, chunk.folds), every)
    models = _as_models(stacked.parameters[: chunk.folds.n_parts])
    return stack.with_regressors(_linear(models, None, "boosting", OUTCOMES["boosting"]), stacked)


def _plugged_in(chunk: Chunk, outcome: object, seed: int) -> Outcomes:
    """A regressor for each action; it predicts only the rows that it is cross-fitted on."""
    regressor = sklearn_models.checked(outcome, "outcome", "regressor", ("fit", "predict"))
    chosen = type(outcome).__name__
    taken = chunk.weight_by_fold_action[:-1] > 0
    n_others = least_squares.sums_of_others(
        taken.astype(float), and_of_all=chunk.folds.n_parts > chunk.folds.n_folds
    )
    return Outcomes(
        of=partial(_regressed, regressor, seed),
        supported=n_others > 0,
        chosen=chosen,
        reason=f"{chosen} per action, as asked",
    )


def _regressed(regressor: object, seed: int, chunk: Chunk) -> FloatArray:  # (n_rows, n_actions)
    """Fit and predict fold by fold, so that one model is in memory at a time: forests are large."""
    data, folds = chunk.data, chunk.folds
    means = np.full((data.n_rows, data.n_actions), np.nan)
    for fold in range(folds.n_parts):
        own = folds.of_row == fold
        for action, name in enumerate(data.action_names):
            rows = folds.learns_from(fold) & (data.actions == action)
            if not rows.any():
                continue
            where = f"outcome model, fold {fold + 1}, action '{name}'"
            fit = sklearn_models.Fit(where, [seed, fold, action])
            fitted = sklearn_models.fitted(regressor, data, rows, data.rewards, fit)
            means[own, action] = sklearn_models.answers(fitted, "predict", data, own, where)
    return means


class StudyOutcomes:
    """Outcome models as the study defines them, for the rows of one client."""

    def __init__(self, rows: "StudyRows", study: "Study", regressor: object = None) -> None:
        self._rows, self._study, self._regressor = rows, study, regressor

    def by(self, given: GivenModels) -> Outcomes:
        """The federation's outcome models, and own models of actions that it has none for.

        Sums of an action that few rows took at every client are not released anywhere. A model that
        never leaves may rest on fewer rows.
        """
        stacked = None
        if self._study.stacked_sizes:
            sums = self._rows.fold_sums()
            stacked = self._stack.stacked(sums, self._enough, given.parameters)
            given = GivenModels(stacked.parameters)
        if given.lacking.any() and (lacking := given.lacking & self._enough).any():
            plan = self._study.nuisances
            sums, terms = self._rows.fold_sums(), self._rows.terms
            own = pooled_parameters(sums, plan.outcome_model, terms)
            lacking &= np.isfinite(own).all(axis=(0, 2))  # in all folds or in none
            given = GivenModels(np.where(lacking[:, None], own, given.parameters))
        found = federated_outcomes(given.linear, self._rows)
        return self._stack.with_regressors(found, stacked) if stacked else found

    @computed_once
    def own(self) -> Outcomes:
        """Outcome models of these rows alone."""
        sums = self._rows.fold_sums()
        if self._study.stacked_sizes:
            stacked = self._stack.stacked(sums, self._enough)
            reason = "ridge regressions on sets of terms, weighed by how they predict other folds"
            found = _linear(_as_models(stacked.parameters), self._rows, "ridge", reason)
            return self._stack.with_regressors(found, stacked)
        held_out = self._rows.n_rows(RowSplit.EVALUATION) > 0
        plan = self._study.nuisances
        return linear_outcomes(sums, plan.outcome_model, self._rows, held_out=held_out)

    @property
    def _enough(self) -> BoolArray:  # (n_actions,)
        """The actions that enough training rows took for own models to be used."""
        return self._rows.split.corrected

    @computed_once
    def _stack(self) -> StackedOutcomes:
        """Own models, to be weighted alone or together with everybody's."""
        regressors, plan = None, self._study.nuisances
        if fit := joined_fit(plan.outcome, self._regressor, self._study.seed):
            regressors = JoinedRegressors(self._rows.whole, fit)
        return StackedOutcomes(self._study.stacked_sizes, self._rows, regressors)
