"""Outcome models for the whole federation, from sums that clients agreed to share."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.messages.learning.outcome_sums import OutcomeSums
from fedopl.solvers import least_squares
from fedopl.study.study import Study


@dataclass(frozen=True, eq=False, kw_only=True)
class OutcomeModels:
    """One linear model for each fold and action, then for each action one from all folds."""

    parameters: FloatArray  # (n_folds + 1, n_actions, n_features + 1), or none
    supported: BoolArray  # (n_folds + 1, n_actions)

    @classmethod
    def none(cls, study: Study) -> Self:
        """No models: every client fits its own."""
        shape = (0, study.n_actions, study.n_features + 1)
        return cls(parameters=np.empty(shape), supported=np.empty(shape[:2], np.bool_))


def solve_outcomes(study: Study, total: OutcomeSums) -> OutcomeModels:
    """Fit each fold's models on the sums of all other folds, of all clients."""
    others = least_squares.sums_of_others(total.sums, and_of_all=True)
    if study.nuisances.outcome == "ols":
        models = least_squares.ordinary(others)
    else:
        squared = least_squares.sums_of_others(total.squared_weights, and_of_all=True)
        rows = least_squares.effective_rows(others[..., -2, -2], squared)
        models = least_squares.ridge(others, rows)
    # An action has a model in every fold or in none: support by fold would reveal folds.
    supported = np.broadcast_to(models.supported.all(axis=0), models.supported.shape)
    intercepts = np.where(supported, models.intercepts, 0.0)
    return OutcomeModels(
        parameters=np.concatenate([models.coefficients, intercepts[..., None]], axis=-1),
        supported=supported,
    )
