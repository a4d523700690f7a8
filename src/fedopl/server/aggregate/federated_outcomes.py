"""Outcome models for the whole federation, from sums that clients agreed to share."""

import numpy as np

from fedopl.messages.learning.outcome_sums import OutcomeSums
from fedopl.messages.learning.score_sums import SumScores
from fedopl.solvers import least_squares
from fedopl.solvers.nested_ridge import models_by_size, of_usable_by_fold, outcome_ridge
from fedopl.study.study import Study


def without_models(study: Study) -> SumScores:
    """The query without models: every client fits its own."""
    shape = (0, study.n_actions, study.n_terms + 1)
    return SumScores(models=np.empty(shape), supported=np.empty(shape[:2]))


def unsupported_models(study: Study) -> SumScores:
    """The query with empty models, for when no client can release the sums that they need."""
    shape = (study.n_outcome_models, study.n_actions, study.n_terms + 1)
    return SumScores(models=np.zeros(shape), supported=np.zeros(shape[:2]))


def solve_outcomes(study: Study, total: OutcomeSums) -> SumScores:
    """The query with each fold's models, fitted on all clients' sums over the other folds."""
    if study.stacked_sizes:
        return _to_be_stacked(study, total)
    others = least_squares.sums_of_others(total.sums, and_of_all=True)
    others = of_usable_by_fold(others, study.terms)
    blocks = least_squares.equal_blocks(study.n_features, study.n_actions)
    on_blocks = study.nuisances.features == "blocks"
    if on_blocks:
        others = least_squares.own_sums(others, blocks)
    if study.nuisances.outcome == "ols":
        models = least_squares.ordinary(others)
    else:
        squared = least_squares.sums_of_others(total.squared_weights, and_of_all=True)
        rows = least_squares.effective_rows(others[..., -2, -2], squared)
        models = outcome_ridge(others, rows, study.terms)
    if on_blocks:
        models = least_squares.widened(models, blocks, study.n_features)
    # An action has a model in every fold or in none. Otherwise models would reveal folds.
    supported = np.broadcast_to(models.supported.all(axis=0), models.supported.shape)
    intercepts = np.where(supported, models.intercepts, 0.0)
    return SumScores(
        models=np.concatenate([models.coefficients, intercepts[..., None]], axis=-1),
        supported=supported.astype(np.float64),
    )


def _to_be_stacked(study: Study, total: OutcomeSums) -> SumScores:
    """The query with models that leave out one fold or two, for every family of terms.

    Models are ordered by set of folds, as in `fold_sets`. Each client chooses its own weights for
    stacking them, on its own rows. The weights stay at the client.
    """
    models = models_by_size(total.sums, total.squared_weights, study.stacked_sizes, study.terms)
    found = np.isfinite(models[:, 0, :, -1])  # (n_sets, n_actions), whatever the terms
    # Too few rows may be left without two folds. Then only the models for scores are supported.
    n_used = study.nuisances.folds + 1
    supported = np.empty_like(found)
    supported[:n_used] = found[:n_used].all(axis=0)
    supported[n_used:] = found.all(axis=0)
    models = np.where(supported[:, None, :, None], models, 0.0)
    every = np.repeat(supported, len(study.stacked_sizes), axis=0)
    return SumScores(
        models=models.reshape(-1, *models.shape[2:]), supported=every.astype(np.float64)
    )
