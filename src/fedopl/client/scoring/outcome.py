"""Outcome models μ̂: what each action would bring, learnt without the rows it is used on."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.errors import DataError, OptionError
from fedopl.client.rows.fold_sums import FoldSums, fold_sums, predict
from fedopl.client.rows.folds import Folds
from fedopl.client.scoring import sklearn_models
from fedopl.client.table.logged_data import LoggedData
from fedopl.solvers import least_squares
from fedopl.solvers.least_squares import LinearModels


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcomes:
    """Predicted rewards, where there was anything to predict them from."""

    means: FloatArray  # (n_rows, n_actions), NaN where not supported
    supported: BoolArray  # (n_folds, n_actions)
    chosen: str
    reason: str


def fit_outcomes(data: LoggedData, folds: Folds, outcome: object, seed: int) -> Outcomes:
    """Cross-fit an outcome model, named or plugged in."""
    if isinstance(outcome, str):
        if outcome not in OUTCOMES:
            raise OptionError(
                f"outcome: expected one of {', '.join(OUTCOMES)} or a scikit-learn regressor, "
                f"came '{outcome}'"
            )
        return OUTCOMES[outcome](data, folds)
    return _plugged(data, folds, outcome, seed)


def models_from(sums: FoldSums, outcome: str, *, apart: bool) -> LinearModels:
    """For each fold the models of all others; one more of all, if rows were set `apart`."""
    others, effective = _learns_from(sums, apart=apart)
    if outcome == "ols":
        models = least_squares.ordinary(others)
    else:
        models = least_squares.ridge(others, effective)
    return least_squares.shift_origin(models, sums.origin)


def _ridge(data: LoggedData, folds: Folds) -> Outcomes:
    sums = fold_sums(data, folds)
    models = least_squares.ridge(*_learns_from(sums, apart=_sets_apart(folds)))
    reason = "one ridge regression per action, its penalty by generalised cross-validation"
    return _predicted(data, folds, sums, models, "ridge", f"{reason} ({_penalty_range(models)})")


def _ols(data: LoggedData, folds: Folds) -> Outcomes:
    sums = fold_sums(data, folds)
    models = least_squares.ordinary(_learns_from(sums, apart=_sets_apart(folds))[0])
    return _predicted(data, folds, sums, models, "ols", "one least-squares regression per action")


def _shared_ridge(data: LoggedData, folds: Folds) -> Outcomes:
    columns = action_blocks(data)
    sums = fold_sums(data, folds, columns)
    blocks = least_squares.ridge(*_learns_from(sums, apart=_sets_apart(folds)), joint=True)
    own = np.concatenate([blocks.coefficients, blocks.intercepts[..., None]], axis=-1)
    wide = least_squares.widen(own, columns, data.n_features)
    models = replace(blocks, coefficients=wide[..., :-1])
    reason = "one ridge regression over the blocks φ(x, a) = x_a, one penalty for all actions"
    chosen = "shared-ridge"
    return _predicted(data, folds, sums, models, chosen, f"{reason} ({_penalty_range(models)})")


def _sets_apart(folds: Folds) -> bool:
    return folds.n_parts > folds.n_folds


def _learns_from(sums: FoldSums, *, apart: bool) -> tuple[FloatArray, FloatArray]:
    """For each fold's models, the sums and effective rows of all other folds."""
    others = least_squares.sums_of_others(sums.sums, and_of_all=apart)
    squared = least_squares.sums_of_others(sums.squared_weights, and_of_all=apart)
    return others, least_squares.effective_rows(others[..., -2, -2], squared)


OUTCOMES: dict[str, Callable[[LoggedData, Folds], Outcomes]] = {
    "ridge": _ridge,
    "ols": _ols,
    "shared-ridge": _shared_ridge,
}


def action_blocks(data: LoggedData) -> list[IntArray]:
    """The columns that describe each action, φ(x, a) = x_a: the contexts cut into equal parts."""
    width, left_over = divmod(data.n_features, data.n_actions)
    if left_over or not width:
        raise DataError(
            f"contexts: {data.n_features} features cannot be cut into {data.n_actions} equal "
            "blocks, one for each action; order them by action or use outcome='ridge'"
        )
    return [np.arange(action * width, (action + 1) * width) for action in range(data.n_actions)]


def _predicted(
    data: LoggedData,
    folds: Folds,
    sums: FoldSums,
    models: LinearModels,
    chosen: str,
    reason: str,
) -> Outcomes:
    models = least_squares.shift_origin(models, sums.origin)
    return Outcomes(
        means=predict(data, folds, models),
        supported=models.supported,
        chosen=chosen,
        reason=reason,
    )


def _penalty_range(models: LinearModels) -> str:
    low, high = np.nanmin(models.penalties), np.nanmax(models.penalties)
    return f"{low:.2g}" if low == high else f"{low:.2g} to {high:.2g}"


def _plugged(data: LoggedData, folds: Folds, outcome: object, seed: int) -> Outcomes:
    regressor = sklearn_models.checked(outcome, "outcome", "regressor", ("fit", "predict"))
    means = np.full((data.n_rows, data.n_actions), np.nan)
    supported = np.zeros((folds.n_parts, data.n_actions), np.bool_)
    for fold in range(folds.n_parts):
        own = folds.of_row == fold
        for action, name in enumerate(data.action_names):
            rows = folds.learns_from(fold) & (data.actions == action)
            supported[fold, action] = rows.any()
            if not supported[fold, action]:
                continue
            where = f"outcome model, fold {fold + 1}, action '{name}'"
            fitted = sklearn_models.fitted(
                regressor, data, rows, data.rewards, where=where, seed=[seed, fold, action]
            )
            means[own, action] = sklearn_models.answers(fitted, "predict", data, own, where)
    chosen = type(outcome).__name__
    return Outcomes(
        means=means, supported=supported, chosen=chosen, reason=f"{chosen} per action, as asked"
    )
