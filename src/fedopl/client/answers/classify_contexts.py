"""What classifiers of contexts predict for the client's own contexts, without a label.

A classifier distinguishes one target's contexts from all others'. The means that a client sends
contain no label. Where the rows are the target's own, the server subtracts the mean context.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.noise import count_scale
from fedopl.client.local.effective_rows import EffectiveRows
from fedopl.client.scoring.values import JointSums
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
        if space.limits.minimum_cell:
            # Only once: over many classifiers, the noise on shares would average out.
            space.history.require_first("classifiers", parameters=query.parameters)
        by_target = _shares(space, query.parameters)
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


def _weighed(
    space: Workspace, split: RowSplit
) -> Iterator[tuple[FloatArray, FloatArray, IntArray | None]]:
    """Contexts with a one for the intercept, weights that add up to one, and groups."""
    total = space.study_rows.weight_of(split)
    for chunk in space.unscored_chunks():
        rows = chunk.rows(split)
        contexts = chunk.data.contexts[rows]
        features = np.column_stack([contexts, np.ones(len(contexts))])
        yield features, chunk.data.weights_of(rows) / total, chunk.data.groups_of(rows)


def _slopes(space: Workspace, classifiers: FloatArray, needed: int) -> list[dict[str, Any]]:
    """Loss and gradient without labels, and Hessian, by target; empty if few rows are behind."""
    from scipy.special import expit  # here, because it is slow to import

    width = classifiers.shape[1]
    losses, pulls = np.zeros(len(classifiers)), np.zeros((len(classifiers), width))
    hessians = np.zeros((len(classifiers), width, width))
    behind = [EffectiveRows() for _ in classifiers]
    for features, weights, _ in _weighed(space, RowSplit.TRAINING):
        for target, parameters in enumerate(classifiers):
            margins = features @ parameters
            chances = expit(margins)
            pull, rest = weights * chances, weights * (1 - chances)
            curvature = rest * chances
            behind[target].add(np.column_stack([pull, rest, curvature]))
            losses[target] += weights @ np.logaddexp(0.0, margins)
            pulls[target] += pull @ features
            hessians[target] += (features * curvature[:, None]).T @ features
    # A steep classifier can be undecided about a few rows only, or sure of all but a few. Its sums
    # would then describe those few rows. The sum over `rest` follows from the pulls and the mean
    # context, which θ = 0 discloses.
    return [
        {"released": 1.0, "loss": float(loss), "pulls": pull, "hessian": hessian}
        if rows.fewest() >= needed
        else {}
        for rows, loss, pull, hessian in zip(behind, losses, pulls, hessians, strict=True)
    ]


def _shares(space: Workspace, classifiers: FloatArray) -> list[dict[str, Any]]:
    """The share of held-out rows that each classifier assigns to its target."""
    sums = [JointSums() for _ in classifiers]
    for features, weights, groups in _weighed(space, RowSplit.EVALUATION):
        for own, parameters in zip(sums, classifiers, strict=True):
            # One product each: with several at once, the bits would depend on their number.
            taken = (features @ parameters > 0).astype(np.float64)
            own.add(taken[:, None], weights, groups)
    return [_share(space, *both) for both in zip(sums, classifiers, strict=True)]


def _share(space: Workspace, sums: JointSums, parameters: FloatArray) -> dict[str, Any]:
    """The share of held-out rows that one classifier assigns to its target, with noise."""
    n_rows, minimum_cell = space.n_rows(RowSplit.EVALUATION), space.limits.minimum_cell
    found = sums.estimate()
    if found is None:
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    if n_rows < minimum_cell:
        raise RefusedError(RefusalCode.TOO_FEW_ROWS)
    _, _, share, variance = found.first_column
    if minimum_cell > 1:
        effect = _design_effect(share, variance, n_rows)
        noisy = space.noisy(np.array(share * n_rows), "share", parameters)
        share = min(float(noisy), n_rows) / n_rows
        # The exact variance would reveal the noise. This one includes the variance of the noise.
        step = count_scale(minimum_cell) / n_rows
        variance = effect * max(share * (1 - share), step) / n_rows + 2 * step**2
    return {"released": 1.0, "target_share": share, "target_share_variance": variance}


def _design_effect(share: float, variance: float, n_rows: int) -> float:
    """The factor by which weights and groups raise the variance, rounded up to a power of two."""
    plain = share * (1 - share) / max(n_rows - 1, 1)
    ratio = variance / plain if plain > 0 else 1.0
    return float(2.0 ** max(0, math.ceil(math.log2(max(ratio, 1.0)) - 1e-9)))
