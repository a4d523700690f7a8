"""What classifiers of contexts predict for the client's own contexts, without a label.

A classifier distinguishes one target's contexts from all others'. The means that leave have no
label in them: the server subtracts the mean context where the rows are the target's own.
"""

import math
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.noise import count_scale
from fedopl.client.local.score_means import effective_rows_behind
from fedopl.client.scoring.values import joint_estimate
from fedopl.client.workspace import Workspace
from fedopl.messages.diagnosis.classifier_sums import ClassifierSums, ClassifyContexts
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode


def answer(space: Workspace, query: ClassifyContexts) -> ClassifierSums:
    """Means or shares by classifier, for the split that was asked about."""
    if query.split not in (RowSplit.TRAINING, RowSplit.EVALUATION):
        raise RefusedError(RefusalCode.MALFORMED)
    needed = space.limits.rows_needed(query.parameters.size)
    if space.n_training < needed:
        raise RefusedError(RefusalCode.TOO_MANY_PARAMETERS)
    rows = space.rows(query.split)
    contexts, weights = space.data.contexts[rows], space.data.weights_of(rows)
    features = np.column_stack([contexts, np.ones(len(contexts))])
    weights = weights / weights.sum()
    if query.split is RowSplit.TRAINING:
        by_target = [_slopes(features, weights, own, needed) for own in query.parameters]
    else:
        if space.limits.minimum_cell:
            # Once: over many classifiers the noise on shares would be averaged out.
            space.history.require_first("classifiers", parameters=query.parameters)
        by_target = [_share(space, features, own, weights) for own in query.parameters]
    width = query.parameters.shape[1]
    nothing: dict[str, Any] = {
        "released": 0.0,
        "loss": 0.0,
        "pulls": np.zeros(width),
        "hessian": np.zeros((width, width)),
        "target_share": 0.0,
        "target_share_variance": 0.0,
    }
    fields: dict[str, Any] = {
        name: np.array([(nothing | own)[name] for own in by_target]) for name in nothing
    }
    return ClassifierSums(**fields)


def _slopes(
    features: FloatArray, weights: FloatArray, parameters: FloatArray, needed: int
) -> dict[str, Any]:
    """Mean loss, pulls and Hessian for one target, or nothing if they rest on a few rows."""
    from scipy.special import expit  # here, as it is slow to import

    margins = features @ parameters
    chances = expit(margins)
    pulls, rest = weights * chances, weights * (1 - chances)
    curvature = rest * chances
    # A steep classifier is undecided about a few rows, or sure of all but a few, and its sums would
    # be theirs. With the mean context, which θ = 0 discloses, the rest follows from the pulls.
    if not effective_rows_behind(np.column_stack([pulls, rest, curvature])) >= needed:
        return {}
    return {
        "released": 1.0,
        "loss": float(weights @ np.logaddexp(0.0, margins)),
        "pulls": pulls @ features,
        "hessian": (features * curvature[:, None]).T @ features,
    }


def _share(
    space: Workspace, features: FloatArray, parameters: FloatArray, weights: FloatArray
) -> dict[str, Any]:
    """The share of held-out rows that one classifier takes for its target's, with noise."""
    # One product for each: the bits of several at once would depend on how many there are.
    taken = (features @ parameters > 0).astype(np.float64)
    n_rows, minimum_cell = len(taken), space.limits.minimum_cell
    groups = space.data.groups_of(space.rows(RowSplit.EVALUATION))
    found = joint_estimate(taken[:, None], weights, groups)
    if found is None:
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    if n_rows < minimum_cell:
        raise RefusedError(RefusalCode.TOO_FEW_ROWS)
    _, _, share, variance = found.first_column
    if minimum_cell > 1:
        effect = _design_effect(share, variance, n_rows)
        noisy = space.noisy(np.array(share * n_rows), "share", parameters)
        share = min(float(noisy), n_rows) / n_rows
        # The exact variance would undo the noise; this has that of the noise in it.
        step = count_scale(minimum_cell) / n_rows
        variance = effect * max(share * (1 - share), step) / n_rows + 2 * step**2
    return {"released": 1.0, "target_share": share, "target_share_variance": variance}


def _design_effect(share: float, variance: float, n_rows: int) -> float:
    """What weights and groups multiply the variance by, rounded up to a power of two."""
    plain = share * (1 - share) / max(n_rows - 1, 1)
    ratio = variance / plain if plain > 0 else 1.0
    return float(2.0 ** max(0, math.ceil(math.log2(max(ratio, 1.0)) - 1e-9)))
