"""Whose contexts are these? What classifiers make of own ones, without a label.

A classifier distinguishes one target's contexts from all others'. The means that leave have no
label in them: the server subtracts the mean context where the rows are the target's own.
"""

import math
from typing import Any

import numpy as np
from scipy.special import expit

from fedopl.base.arrays import FloatArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.random_rounding import randomly_rounded
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
    if query.split is RowSplit.TRAINING:
        by_target = _slopes(space, query.parameters, needed)
    else:
        by_target = _shares(space, query.parameters)
    nothing = _nothing(query.parameters.shape[1])
    fields: dict[str, Any] = {
        name: np.array([{**nothing, **found}[name] for found in by_target]) for name in nothing
    }
    return ClassifierSums(**fields)


def _nothing(width: int) -> dict[str, Any]:
    """What is released of a target where everything is suppressed."""
    return {
        "told": 0.0,
        "loss": 0.0,
        "pulls": np.zeros(width),
        "hessian": np.zeros((width, width)),
        "target_share": 0.0,
        "target_share_variance": 0.0,
    }


# --- training rows -------------------------------------------------------------------------------


def _slopes(space: Workspace, parameters: FloatArray, needed: int) -> list[dict[str, Any]]:
    """Mean loss, pulls and Hessian of each classifier over training rows."""
    features, weights = _features(space, space.training), _weights(space, space.training)
    return [_slopes_of(features, weights, own, needed) for own in parameters]


def _slopes_of(
    features: FloatArray, weights: FloatArray, parameters: FloatArray, needed: int
) -> dict[str, Any]:
    """The means for one target, or nothing if they rest on a few rows."""
    margins = features @ parameters
    chances = expit(margins)
    pulls, rest = weights * chances, weights * (1 - chances)
    curvature = rest * chances
    # A steep classifier is undecided about a few rows, or sure of all but a few, and its sums would
    # be theirs. With the mean context, which θ = 0 discloses, the rest follows from the pulls.
    if not effective_rows_behind(np.column_stack([pulls, rest, curvature])) >= needed:
        return {}
    return {
        "told": 1.0,
        "loss": float(weights @ np.logaddexp(0.0, margins)),
        "pulls": pulls @ features,
        "hessian": (features * curvature[:, None]).T @ features,
    }


# --- held-out rows -------------------------------------------------------------------------------


def _shares(space: Workspace, parameters: FloatArray) -> list[dict[str, Any]]:
    """The share of held-out rows that each classifier takes for its target's."""
    rows = space.rows(RowSplit.EVALUATION)
    n_rows = rows.stop - rows.start
    if not n_rows:
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    if n_rows < space.limits.minimum_cell:
        raise RefusedError(RefusalCode.TOO_FEW_ROWS)
    features = _features(space, rows)
    taken = [(features @ own > 0).astype(np.float64) for own in parameters]
    return [{"told": 1.0, **_share(space, rows, own)} for own in taken]


def _share(space: Workspace, rows: slice, taken: FloatArray) -> dict[str, float]:
    """One share, rounded by chance."""
    n_rows, groups, minimum_cell = len(taken), space.data.groups, space.limits.minimum_cell
    found = joint_estimate(
        taken[:, None], _weights(space, rows), None if groups is None else groups[rows]
    )
    if found is None:
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    share, variance = float(found.means[0]), float(found.covariances[0, 0])
    if minimum_cell < 2:
        return {"target_share": share, "target_share_variance": variance}
    # Draws follow the rows that are taken: classifiers that take the same ones are rounded alike,
    # so that asking for many of them does not average the rounding out.
    draws = space.rounding_draws(taken)
    rounded = float(randomly_rounded(np.array(share * n_rows), minimum_cell, draws)) / n_rows
    effect = _design_effect(share, variance, n_rows)
    return {
        "target_share": rounded,
        "target_share_variance": _released_variance(rounded, effect, n_rows, minimum_cell),
    }


def _design_effect(share: float, variance: float, n_rows: int) -> float:
    """What weights and groups multiply the variance by, rounded up to a power of two."""
    plain = share * (1 - share) / max(n_rows - 1, 1)
    ratio = variance / plain if plain > 0 else 1.0
    return float(2.0 ** max(0, math.ceil(math.log2(max(ratio, 1.0)) - 1e-9)))


def _released_variance(share: float, effect: float, n_rows: int, minimum_cell: int) -> float:
    """The variance of what is released, with that of rounding; the exact one would undo it."""
    step = minimum_cell / n_rows
    spread = max(share * (1 - share), step / 2)
    return effect * spread / n_rows + step**2 / 4


def _features(space: Workspace, rows: slice) -> FloatArray:  # (n_rows, n_features + 1)
    contexts = space.data.contexts[rows]
    return np.column_stack([contexts, np.ones(len(contexts))])


def _weights(space: Workspace, rows: slice) -> FloatArray:  # (n_rows,)
    """Shares of all weight."""
    weights = space.data.weights
    chosen = np.ones(rows.stop - rows.start) if weights is None else weights[rows]
    shares: FloatArray = chosen / chosen.sum()
    return shares
