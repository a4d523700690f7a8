"""Models that users plug in, by scikit-learn's conventions; and the settings of boosted trees."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.base.errors import ModelError, OptionError
from fedopl.client.table.logged_data import LoggedData

# Settings of boosted trees, for actions and for outcomes.
TREE_OPTIONS = {
    "max_leaf_nodes": 4,
    "min_samples_leaf": 10,
    "l2_regularization": 1.0,
    "early_stopping": False,
    "random_state": 0,
}
# More rounds are tried if the best one is in the last quarter of those tried so far.
ROUNDS = (30, 90, 240)
STILL_IMPROVING = 0.75
# Short steps are better with few rows. With many rows they only take longer.
SHORT_STEP, LONG_STEP, MANY_ROWS_BOOSTED = 0.1, 0.2, 2_000


def checked(model: object, option: str, kind: str, methods: tuple[str, ...]) -> Any:
    """The model, if it has the methods a scikit-learn model of its kind has."""
    missing = [name for name in methods if not callable(getattr(model, name, None))]
    if missing or isinstance(model, type):
        raise OptionError(
            f"{option}: expected a name or a scikit-learn {kind} (an object, not a class) with "
            f"{' and '.join(methods)}, came {model!r}"
        )
    return model


@dataclass(frozen=True)
class Fit:
    """Identifies one of many fits of a model."""

    where: str  # in words, for errors
    seed: list[int]  # for random states that the user did not set


def fitted(
    model: Any, data: LoggedData, rows: BoolArray, targets: np.ndarray[Any, Any], fit: Fit
) -> Any:
    """A fresh copy of the model, fitted to these rows; the given model stays unchanged."""
    from sklearn.base import clone

    try:
        fresh = _seeded(clone(model), fit.seed)
    except TypeError as error:
        raise OptionError(f"{fit.where}: cannot be cloned as scikit-learn does: {error}") from None
    options = {}
    if data.weights is not None:
        options[_weight_parameter(fresh, fit.where)] = data.weights[rows]
    try:
        return fresh.fit(data.contexts[rows], targets[rows], **options)
    except Exception as error:
        raise ModelError(
            f"{fit.where}: {type(model).__name__}.fit failed on {rows.sum():,} rows: {error}"
        ) from error


def answers(
    model: Any, method: str, data: LoggedData, rows: BoolArray | slice, where: str
) -> FloatArray:
    """The model's predictions for these rows; an error unless all are finite, one per cell."""
    contexts = data.contexts[rows]
    try:
        predicted = np.asarray(getattr(model, method)(contexts), np.float64)
    except Exception as error:
        raise ModelError(f"{where}: {type(model).__name__}.{method} failed: {error}") from error
    if len(predicted) != len(contexts) or not np.isfinite(predicted).all():
        raise ModelError(f"{where}: {type(model).__name__}.{method} gave missing or no numbers")
    return predicted


def _seeded(model: Any, seed: list[int]) -> Any:
    """Fix every random state that the user did not set, so that one seed reproduces a run."""
    state = int(np.random.SeedSequence(seed).generate_state(1)[0])
    left_open = [
        name
        for name, value in model.get_params().items()
        if name.rsplit("__", 1)[-1] == "random_state" and value is None
    ]
    return model.set_params(**dict.fromkeys(left_open, state))


def _weight_parameter(model: Any, where: str) -> str:
    """The name of row weights in `fit`; a pipeline passes them on to its last step."""
    from sklearn.pipeline import Pipeline
    from sklearn.utils.validation import has_fit_parameter

    prefix, taker = "", model
    if isinstance(model, Pipeline):
        name, taker = model.steps[-1]
        prefix = f"{name}__"
    if not has_fit_parameter(taker, "sample_weight"):
        raise OptionError(
            f"{where}: the data are weighted and {type(taker).__name__}.fit takes no sample_weight"
        )
    return f"{prefix}sample_weight"


def step_for(n_rows: int) -> float:
    """The learning rate for this number of rows."""
    return LONG_STEP if n_rows > MANY_ROWS_BOOSTED else SHORT_STEP
