"""Whose contexts are these? A classifier's loss on own ones, and whose it takes them for.

All rows of a client have the same label: the target's are 1, all others' are 0.
"""

import math
from typing import Any

import numpy as np
from scipy.special import expit

from fedopl.arrays import BoolArray, FloatArray
from fedopl.client.limits import RefusedError
from fedopl.client.rounding import rounded, rounding_draws
from fedopl.client.statistics import effective_rows_behind
from fedopl.client.values import joint_estimate
from fedopl.client.workspace import Workspace
from fedopl.wire.vocabulary import ClassifyContexts, RefusalCode, Split


def classify(space: Workspace, query: ClassifyContexts, minimum_cell: int) -> dict[str, Any]:
    """The fields of ClassifierSums, for the split that was asked about."""
    if query.is_target not in (0, 1) or query.split not in (Split.TRAINING, Split.EVALUATION):
        raise RefusedError(RefusalCode.MALFORMED)
    width = len(query.parameters)
    told: dict[str, Any] = {
        "loss": 0.0,
        "target_share": 0.0,
        "target_share_variance": 0.0,
        "gradient": np.zeros(width),
        "hessian": np.zeros((width, width)),
    }
    asked = _slopes if query.split is Split.TRAINING else _shares
    return {**told, **asked(space, query, minimum_cell)}


def _slopes(space: Workspace, query: ClassifyContexts, _minimum_cell: int) -> dict[str, Any]:
    """Mean loss, gradient and Hessian over training rows, if they rest on enough of them."""
    features, weights = _features(space, space.training), _weights(space, space.training)
    margins = features @ query.parameters
    chances = expit(margins)
    pulls = weights * (chances - query.is_target)
    curvature = weights * chances * (1 - chances)
    # A steep classifier is undecided about a few rows, and its sums would be theirs.
    if not effective_rows_behind(np.column_stack([pulls, curvature])) >= space.rows_needed:
        raise RefusedError(RefusalCode.SMALL_CELLS)
    return {
        "loss": float(weights @ np.logaddexp(0.0, margins) - query.is_target * weights @ margins),
        "gradient": pulls @ features,
        "hessian": (features * curvature[:, None]).T @ features,
    }


def _shares(space: Workspace, query: ClassifyContexts, minimum_cell: int) -> dict[str, Any]:
    """The share of held-out rows that are taken for the target's, rounded by chance."""
    rows, data = space.rows(Split.EVALUATION), space.data
    n_rows = int(rows.sum())
    if not n_rows:
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    if n_rows < minimum_cell:
        raise RefusedError(RefusalCode.TOO_FEW_ROWS)
    taken = (_features(space, rows) @ query.parameters > 0).astype(np.float64)
    groups = None if data.groups is None else data.groups[rows]
    found = joint_estimate(taken[:, None], _weights(space, rows), groups)
    if found is None:
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    share, variance = float(found.means[0]), float(found.covariances[0, 0])
    if minimum_cell < 2:
        return {"target_share": share, "target_share_variance": variance}
    draws = rounding_draws(space, query.parameters)
    told = float(rounded(np.array(share * n_rows), minimum_cell, draws)) / n_rows
    effect = _design_effect(share, variance, n_rows)
    return {
        "target_share": told,
        "target_share_variance": _told_variance(told, effect, n_rows, minimum_cell),
    }


def _design_effect(share: float, variance: float, n_rows: int) -> float:
    """What weights and groups multiply the variance by, rounded up to a power of two."""
    plain = share * (1 - share) / max(n_rows - 1, 1)
    ratio = variance / plain if plain > 0 else 1.0
    return float(2.0 ** max(0, math.ceil(math.log2(max(ratio, 1.0)) - 1e-9)))


def _told_variance(share: float, effect: float, n_rows: int, minimum_cell: int) -> float:
    """The variance of what is told, with that of rounding; the exact one would undo it."""
    step = minimum_cell / n_rows
    spread = max(share * (1 - share), step / 2)
    return effect * spread / n_rows + step**2 / 4


def _features(space: Workspace, rows: BoolArray) -> FloatArray:  # (n_rows, n_features + 1)
    contexts = space.data.contexts[rows]
    return np.column_stack([contexts, np.ones(len(contexts))])


def _weights(space: Workspace, rows: BoolArray) -> FloatArray:  # (n_rows,)
    """Shares of all weight."""
    weights = space.data.weights
    chosen = np.ones(int(rows.sum())) if weights is None else weights[rows]
    shares: FloatArray = chosen / chosen.sum()
    return shares
