"""Whether models fit the client's rows: numbers by action, of actions that enough rows took."""

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.model_fit import FIT_NUMBERS, ModelFit, TellFit


def answer(space: Workspace, _query: TellFit) -> ModelFit:
    """The fit of each action with enough rows behind it."""
    fit, imbalance = space.scored.fit, space.scored.imbalance
    rows = fit[:, FIT_NUMBERS.index("effective_rows")]
    told = rows >= max(space.limits.minimum_cell, 1)  # False for NaN

    def of_told(numbers: FloatArray) -> FloatArray:
        return np.where(told[:, None], numbers, 0.0)

    features, squares = map(of_told, imbalance)
    return ModelFit(numbers=of_told(fit), imbalance=features, imbalance_of_squares=squares)
