"""Outcome models that are weighted means: everybody's and own ones, and regressors that join them.

All models except regressors come from sums, on each family of terms, and are made without certain
sets of folds. Each regressor, of boosted trees or a user's own, is fitted to each action's rows
without each of the same sets. So all models can be weighted by rows that none of them saw. The
weights belong to the client. They are chosen on its rows, for each fold on rows of other folds, and
never leave.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.one_thread import ONE_OPENMP_THREAD
from fedopl.client.rows.chunks import Chunk, joined
from fedopl.client.rows.fold_sums import FoldSums
from fedopl.client.scoring import sklearn_models
from fedopl.client.scoring.sklearn_models import ROUNDS, STILL_IMPROVING, TREE_OPTIONS, step_for
from fedopl.client.table.logged_data import LoggedData
from fedopl.solvers.nested_ridge import (
    chosen_on,
    fold_sets,
    models_by_size,
    place_without,
    residual_loadings,
    residual_squares,
    stacking_weights,
)

if TYPE_CHECKING:  # a study is slow to import, and scores of arrays do not need it
    from fedopl.client.rows.study_rows import StudyRows
    from fedopl.client.scoring.outcome import Outcomes


FEWEST_FITTED = 2  # rows of an action, without two folds
ROWS_TO_TRY = 100

InTerms = Callable[[Chunk], Chunk]  # the same rows with terms as contexts


# One action's models, one for each set of left-out folds.
Regressors: TypeAlias = "BoostedTrees | PluggedIn"
FitAction = Callable[[Chunk, int], "Regressors"]


class JoinedRegressors:
    """Regressors of all actions, and their residuals on rows that they did not see."""

    def __init__(self, chunk: Chunk, fit: FitAction) -> None:
        self._chunk, self.n_folds = chunk, chunk.folds.n_folds
        self._of_action = [
            fit(chunk, action) if self._are_enough(action) else None
            for action in range(chunk.data.n_actions)
        ]

    @property
    def supported(self) -> BoolArray:  # (n_actions,)
        """The actions that have models."""
        return np.array([models is not None for models in self._of_action])

    def moments(
        self, in_terms: InTerms, origin: FloatArray
    ) -> dict[tuple[int, int], FloatArray]:  # (n_actions, n_terms + 3)
        """Σ w·e·(z, e) over a fold's rows, by part and fold that the part's weights are chosen on.

        Here e is the residual of the models without both, and z = (x − x₀, 1, y − y₀) for terms x.
        """
        found = {}
        for fold in range(self.n_folds):
            own = np.flatnonzero(self._chunk.folds.of_row == fold)
            chunk = in_terms(self._chunk.taken(own))
            z = np.column_stack([chunk.data.contexts, np.ones(len(own)), chunk.data.rewards])
            z[:, :-2] -= origin[:-1]
            z[:, -1] -= origin[-1]
            for part in range(self.n_folds + 1):
                if fold in chosen_on(part, self.n_folds):
                    found[part, fold] = self._moments(part, fold, own, z)
        return found

    def _moments(
        self, part: int, fold: int, own: IntArray, z: FloatArray
    ) -> FloatArray:  # (n_actions, n_terms + 3)
        data = self._chunk.data
        found = np.zeros((data.n_actions, z.shape[1] + 1))
        place = place_without(part, fold, self.n_folds)
        for action, models in enumerate(self._of_action):
            taken = data.actions[own] == action
            if models is None or not taken.any():
                continue
            rows = np.zeros(data.n_rows, np.bool_)
            rows[own[taken]] = True
            left = data.rewards[rows] - models.predicted(part, place, data, rows)
            found[action] = (data.weights_of(rows) * left) @ np.column_stack([z[taken], left])
        return found

    def predicted(self, weights: FloatArray, chunk: Chunk) -> FloatArray:  # (n_rows, n_actions)
        """Each row's predictions by the models that never saw its fold, times these weights."""
        means = np.zeros((chunk.data.n_rows, chunk.data.n_actions))
        for part in range(self.n_folds + 1):
            own = chunk.folds.of_row == part
            for action, models in enumerate(self._of_action):
                weight = weights[part, action]  # (n_folds + 1, n_actions)
                if models is not None and weight > 0 and own.any():
                    means[own, action] = weight * models.predicted(part, part, chunk.data, own)
        return means

    def _are_enough(self, action: int) -> bool:
        """Whether every model would have enough rows to learn from."""
        rows = _rows_without(self._chunk, action)
        return all(own.sum() >= FEWEST_FITTED for own in rows)


def _rows_without(chunk: Chunk, action: int) -> list[BoolArray]:
    """For each set of folds, the rows of an action in all other folds."""
    learned = ~chunk.folds.held_out & (chunk.data.actions == action)
    sets = fold_sets(chunk.folds.n_folds)
    return [learned & ~np.isin(chunk.folds.of_row, sorted(left_out)) for left_out in sets]


def joined_fit(outcome: str, regressor: object, seed: int) -> FitAction | None:
    """How regressors of this name are fitted; None if there are only models from sums."""
    if outcome == "boosting":
        return BoostedTrees
    return partial(PluggedIn, regressor, seed) if outcome == "plugged-in" else None


def try_out(regressor: object, data: LoggedData) -> None:
    """Raise an error for an object that is no regressor or fails on a few of these rows.

    Here the error can still be shown.
    """
    sklearn_models.checked(regressor, "outcome", "regressor", ("fit", "predict"))
    some = data.part(slice(0, ROWS_TO_TRY))
    rows = np.ones(some.n_rows, np.bool_)
    which = sklearn_models.Fit("outcome model", [0])
    fitted = sklearn_models.fitted(regressor, some, rows, some.rewards, which)
    sklearn_models.answers(fitted, "predict", some, rows, "outcome model")


# --- boosted trees ---------------------------------------------------------------------------


class BoostedTrees:
    """Boosted trees of one action; each part has as many as predict other folds best, or 0."""

    def __init__(self, chunk: Chunk, action: int) -> None:
        self._data, self._folds = chunk.data, chunk.folds
        self._rows = _rows_without(chunk, action)
        self._takers = chunk.data.actions == action
        self._means = [
            float(np.average(chunk.data.rewards[rows], weights=chunk.data.weights_of(rows)))
            for rows in self._rows
        ]
        self._models = [_trees(rows) for rows in self._rows]
        with ONE_OPENMP_THREAD:
            self._rounds = [self._best_rounds(part) for part in range(chunk.folds.n_folds + 1)]

    def predicted(
        self, part: int, place: int, data: LoggedData, rows: BoolArray
    ) -> FloatArray:  # (n_rows,)
        """Predictions by the first trees of a model, as many as the part has."""
        n_rounds = self._rounds[part]
        if not n_rounds:
            return np.full(int(rows.sum()), self._means[place])
        with ONE_OPENMP_THREAD:
            stages = self._models[place].staged_predict(data.contexts[rows])
            found: FloatArray = next(islice(stages, n_rounds - 1, None))
        return found

    def _best_rounds(self, part: int) -> int:
        """The number of rounds that best predicts the folds this part's weights are chosen on.

        Nothing else affects it, not even how many rounds are tried.
        """
        n_folds = self._folds.n_folds
        losses = sum(self._losses_at_first(part, fold) for fold in chosen_on(part, n_folds))
        tried = 0
        for most in ROUNDS:
            later = sum(
                self._losses_after(part, fold, slice(tried, most))
                for fold in chosen_on(part, n_folds)
            )
            losses = np.append(losses, later)
            best, tried = int(np.argmin(losses)), most
            if best <= STILL_IMPROVING * most:
                break
        self._fit(part, best)
        return best

    def _losses_at_first(self, part: int, fold: int) -> FloatArray:  # (1,)
        """The squared error on a fold without any tree."""
        place, rows = self._tried_on(part, fold)
        return self._losses(rows, [np.full(int(rows.sum()), self._means[place])])

    def _losses_after(self, part: int, fold: int, rounds: slice) -> FloatArray:  # (n_rounds,)
        """The squared error on a fold after each of these rounds, of models without both."""
        place, rows = self._tried_on(part, fold)
        if not rows.any():
            return np.zeros(rounds.stop - rounds.start)
        self._fit(place, rounds.stop)
        stages = self._models[place].staged_predict(self._data.contexts[rows])
        return self._losses(rows, islice(stages, rounds.start, rounds.stop))

    def _tried_on(self, part: int, fold: int) -> tuple[int, BoolArray]:
        place = place_without(part, fold, self._folds.n_folds)
        return place, self._takers & (self._folds.of_row == fold)

    def _losses(self, rows: BoolArray, predicted: Iterable[FloatArray]) -> FloatArray:
        rewards, weights = self._data.rewards[rows], self._data.weights_of(rows)
        return np.array([weights @ (rewards - one) ** 2 for one in predicted])

    def _fit(self, place: int, n_rounds: int) -> None:
        """Fit a model to at least this many rounds, in the same steps for all callers."""
        model, rows = self._models[place], self._rows[place]
        weights = None if self._data.weights is None else self._data.weights[rows]
        for most in ROUNDS:
            fitted = getattr(model, "n_iter_", 0)
            if fitted < most and fitted < n_rounds:
                model.set_params(max_iter=most)
                model.fit(self._data.contexts[rows], self._data.rewards[rows], weights)


def _trees(rows: BoolArray) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(
        learning_rate=step_for(int(rows.sum())), warm_start=True, **TREE_OPTIONS
    )


# --- a user's own ----------------------------------------------------------------------------


class PluggedIn:
    """Copies of a scikit-learn regressor, fitted to one action's rows."""

    def __init__(self, regressor: object, seed: int, chunk: Chunk, action: int) -> None:
        self._where = f"outcome model, action '{chunk.data.action_names[action]}'"
        self._models = [
            sklearn_models.fitted(
                regressor,
                chunk.data,
                rows,
                chunk.data.rewards,
                sklearn_models.Fit(self._where, [seed, place, action]),
            )
            for place, rows in enumerate(_rows_without(chunk, action))
        ]

    def predicted(
        self, _part: int, place: int, data: LoggedData, rows: BoolArray
    ) -> FloatArray:  # (n_rows,)
        """Predictions by the copy at this place."""
        return sklearn_models.answers(self._models[place], "predict", data, rows, self._where)


@dataclass(frozen=True, eq=False, kw_only=True)
class Stacked:
    """Weighted means of models, and the weights of the regressors that joined them."""

    parameters: FloatArray  # (n_folds + 1, n_actions, n_terms + 1), the intercept last
    joined: FloatArray  # (n_folds + 1, n_actions)


class StackedOutcomes:
    """A client's own models, to be weighted alone or together with everybody's."""

    def __init__(
        self,
        sizes: tuple[int, ...],
        rows: "StudyRows | None" = None,
        regressors: JoinedRegressors | None = None,
    ) -> None:
        self._sizes, self._rows, self._regressors = sizes, rows, regressors
        self._own: FloatArray | None = None
        self._moments: dict[tuple[int, int], FloatArray] = {}

    def stacked(
        self, sums: FoldSums, counted: BoolArray, shared: FloatArray | None = None
    ) -> Stacked:
        """The weighted means that predict this client's rows best, given its sums by fold.

        Everybody's models come as (n_sets · n_sizes, n_actions, n_terms + 1). An action that is not
        `counted`, (n_actions,), does not affect the weights, and has no models of its own beside
        everybody's. Otherwise anyone who knows everybody's models could infer the outcomes of its
        few rows from scores.
        """
        models, n_shared = self._own_models(sums), 0
        if shared is not None:
            n_shared = len(self._sizes)
            theirs = _about(shared.reshape(-1, n_shared, *shared.shape[1:]), sums.origin)
            models = np.concatenate([theirs, models], axis=1)
        supported = np.isfinite(models[..., -1])
        if self._regressors:
            also = np.broadcast_to(self._regressors.supported, (len(models), 1, models.shape[2]))
            supported = np.concatenate([supported, also], axis=1)
        n_folds = len(sums.sums)

        def residuals(part: int, fold: int) -> FloatArray:  # (n_actions, n_models, n_models)
            without = models[place_without(part, fold, n_folds)]
            squares = residual_squares(without, sums.sums[fold])
            if not self._regressors:
                return squares
            return _bordered(squares, residual_loadings(without), self._moments[part, fold])

        weights = stacking_weights(residuals, supported, n_shared, counted)
        n_models = models.shape[1]
        from_zero = _about(models, -sums.origin)
        return Stacked(
            parameters=_weighted(weights[..., :n_models], from_zero),
            joined=weights[..., n_models:].sum(axis=-1),
        )

    def with_regressors(self, outcomes: "Outcomes", stacked: Stacked) -> "Outcomes":
        """Predictions by the linear part and, with their weights, by the regressors that joined."""
        regressors = self._regressors
        if regressors is None or not stacked.joined.any():
            return outcomes

        def of(chunk: Chunk) -> FloatArray:  # (n_rows, n_actions)
            return outcomes.of(chunk) + regressors.predicted(stacked.joined, chunk)

        return replace(outcomes, of=of)

    def _own_models(self, sums: FoldSums) -> FloatArray:  # (n_sets, n_sizes, n_actions, ...)
        if self._own is None:
            terms = self._rows.terms if self._rows else None
            self._own = models_by_size(sums.sums, sums.squared_weights, self._sizes, terms)
            if self._regressors:
                self._moments = self._regressors.moments(self._in_terms, sums.origin)
        return self._own

    def _in_terms(self, chunk: Chunk) -> Chunk:
        if self._rows is None:
            return chunk
        return joined([part for _, part in self._rows.into_terms(chunk)])


def _bordered(
    squares: FloatArray, loadings: FloatArray, moments: FloatArray
) -> FloatArray:  # (n_actions, n_models + 1, n_models + 1)
    """Products of residuals; those with regressors, Σ w·e·(z, e), are the last row and column."""
    beside = np.einsum("amz,az->am", loadings, moments[:, :-1])
    top = np.concatenate([squares, beside[..., None]], axis=2)
    last = np.concatenate([beside, moments[:, -1:]], axis=1)
    return np.concatenate([top, last[:, None]], axis=1)


def _weighted(
    weights: FloatArray, models: FloatArray
) -> FloatArray:  # (n_folds + 1, n_actions, n_terms + 1)
    """Each part's weighted mean of its models; a model without weight may be missing."""
    weighs = np.swapaxes(weights, 1, 2)[..., None]  # (n_folds + 1, n_models, n_actions, 1)
    return np.asarray(np.where(weighs > 0, weighs * models[: len(weights)], 0.0).sum(axis=1))


def _about(parameters: FloatArray, origin: FloatArray) -> FloatArray:  # shaped as parameters
    """The same models for terms and outcomes measured from this origin."""
    moved = parameters.copy()
    moved[..., -1] += np.nan_to_num(parameters[..., :-1]) @ origin[:-1] - origin[-1]
    return moved
