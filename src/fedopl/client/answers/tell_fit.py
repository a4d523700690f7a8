"""Whether models fit the client's rows: numbers by action that no single row decides."""

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.client.scoring.fit_numbers import FitNumbers
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.model_fit import SMALLEST_SHARE, TOLD_OF_FIT, ModelFit, TellFit

DIGITS = 2  # of imbalances and shares; chance moves them by more


def answer(space: Workspace, _query: TellFit) -> ModelFit:
    """The fit of each action with enough rows behind it; means have noise, the rest is rounded."""
    space.check_rows_for_sums()
    found = FitNumbers(numbers=space.scored.fit, imbalance=space.scored.imbalance)
    needed = max(space.rows_needed, 1)
    released = found.of("effective_rows") >= needed  # False for NaN
    trim_released = released & _nothing_or_enough(found, space.limits.minimum_cell)
    imbalance, of_squares = _rounded(np.where(released[:, None], found.imbalance, 0.0))
    told: dict[str, FloatArray] = {
        "released": released.astype(np.float64),
        **_with_noise(space, found, "moved", released),
        "explained": _rounded(np.where(released, found.of("explained"), 0.0)),
        "trim_released": trim_released.astype(np.float64),
        **_with_noise(space, found, "trimmed", trim_released),
        "largest_weights": _rounded_up(found.of("largest_weights"), released),
        "largest_influences": _rounded_up(found.of("largest_influences"), released),
    }
    numbers = np.column_stack([told[name] for name in TOLD_OF_FIT])
    return ModelFit(numbers=numbers, imbalance=imbalance, imbalance_of_squares=of_squares)


def _nothing_or_enough(found: FitNumbers, minimum_cell: int) -> BoolArray:  # (n_actions,)
    """Whether trimming changes no row, or more than a few rows."""
    rows = found.of("trimmed_rows")
    return np.asarray((rows == 0) | (rows >= minimum_cell))


def _with_noise(
    space: Workspace, found: FitNumbers, name: str, released: BoolArray
) -> dict[str, FloatArray]:
    """Means and their variances, with noise as large as the change that a few rows make."""
    means = np.where(released, found.of(name), 0.0)
    variances = np.where(released, found.of(f"{name}_variances"), 0.0)
    if space.limits.value_noise:
        # A usual row changes a mean by its standard error over the root of the number of rows.
        scale = space.limits.value_noise * np.sqrt(variances / max(space.n_training, 1))
        means = means + scale * space.noise_for("fit", name).standard_normal(len(means))
        variances = variances + scale**2
    return {name: means, f"{name}_variances": variances}


def _rounded(numbers: FloatArray) -> FloatArray:  # shaped as numbers
    return np.asarray(np.round(numbers, DIGITS) + 0.0, np.float64)


def _rounded_up(shares: FloatArray, released: BoolArray) -> FloatArray:  # (n_actions,)
    """Shares of single rows, rounded up to a power of two; zero where suppressed."""
    safe = np.clip(np.nan_to_num(shares), SMALLEST_SHARE, 1.0)
    return np.where(released, 2.0 ** np.ceil(np.log2(safe) - 1e-9), 0.0)
