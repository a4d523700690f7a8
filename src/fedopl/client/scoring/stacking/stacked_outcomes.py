"""Outcome models that are weighted means: everybody's and own ones, on each family of terms.

All models except joined regressors come from sums. The weights belong to the client. They are
chosen on its rows, for each fold on rows of other folds, and never leave.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.client.rows.chunks import Chunk, joined
from fedopl.client.rows.fold_sums import FoldSums
from fedopl.client.scoring.stacking.joined_regressors import JoinedRegressors
from fedopl.solvers.nested_ridge import (
    models_by_size,
    place_without,
    residual_loadings,
    residual_squares,
    stacking_weights,
)

if TYPE_CHECKING:  # a study is slow to import, and scores of arrays do not need it
    from fedopl.client.rows.study_rows import StudyRows
    from fedopl.client.scoring.outcome import Outcomes


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
