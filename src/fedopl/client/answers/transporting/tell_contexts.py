"""The distribution of the target's contexts: means of (x, 1) and of its squares."""

from typing import Any

import numpy as np

from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.workspace import TargetWorkspace
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.target.context_moments import ContextMoments, TellContexts


def answer(space: TargetWorkspace, _query: TellContexts) -> ContextMoments:
    """The weighted means over all rows, with what few rows have held."""
    if not space.limits.adds_terms(2 * space.study.n_features + 1, space.n_training):
        raise RefusedError(RefusalCode.TOO_MANY_PARAMETERS)
    sums: Any = 0.0
    for chunk in space.unscored_chunks():
        contexts = chunk.data.contexts[chunk.training]
        weights = chunk.weights(chunk.training)
        features = np.column_stack([contexts, np.ones(len(contexts))])
        weighted = features if weights is None else features * weights[:, None]
        sums = sums + np.array([weighted.sum(axis=0), (weighted * features).sum(axis=0)])
    means, squares = sums / sums[0, -1]
    return ContextMoments(n_rows=space.n_training, means=means, squares=squares)
