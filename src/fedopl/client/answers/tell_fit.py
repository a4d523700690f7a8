"""Whether models fit the client's rows: numbers by action, of actions that enough rows took."""

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.client.scoring.fit_numbers import FitNumbers
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.model_fit import SMALLEST_SHARE, TOLD_OF_FIT, ModelFit, TellFit


def answer(space: Workspace, _query: TellFit) -> ModelFit:
    """The fit of each action with enough rows behind it."""
    found = FitNumbers(numbers=space.scored.fit, imbalance=space.scored.imbalance)
    minimum = max(space.limits.minimum_cell, 1)
    told = found.of("effective_rows") >= minimum  # False for NaN
    trimmed = found.of("trimmed_rows")
    trims = told & ((trimmed == 0) | (trimmed >= minimum))
    numbers = {
        "released": told.astype(np.float64),
        **_of(found, ("moved", "moved_variances", "explained"), told),
        "trim_released": trims.astype(np.float64),
        **_of(found, ("trimmed", "trimmed_variances"), trims),
        "largest_weights": _at_most(found.of("largest_weights"), told),
        "largest_influences": _at_most(found.of("largest_influences"), told),
    }
    imbalance, of_squares = np.where(told[:, None], found.imbalance, 0.0)
    return ModelFit(
        numbers=np.column_stack([numbers[name] for name in TOLD_OF_FIT]),
        imbalance=imbalance,
        imbalance_of_squares=of_squares,
    )


def _of(found: FitNumbers, names: tuple[str, ...], told: BoolArray) -> dict[str, FloatArray]:
    return {name: np.where(told, found.of(name), 0.0) for name in names}


def _at_most(shares: FloatArray, told: BoolArray) -> FloatArray:  # (n_actions,)
    """What shares of single rows are at most, by powers of two: no share itself leaves."""
    safe = np.clip(np.nan_to_num(shares), SMALLEST_SHARE, 1.0)
    return np.where(told, 2.0 ** np.ceil(np.log2(safe) - 1e-9), 0.0)
