"""What classifiers of contexts predict for the client's own contexts, without a label.

A classifier distinguishes one target's contexts from all others'. The means that a client sends
contain no label. Where the rows are the target's own, the server subtracts the mean context.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.answers.learning import check_terms
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.scoring.values import ColumnSums
from fedopl.client.workspace import Workspace
from fedopl.messages.about_differences import (
    ClassifierSums,
    ClassifyContexts,
    fitted_split,
    judged_split,
)
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode


def answer(space: Workspace, query: ClassifyContexts) -> ClassifierSums:
    """Means or shares by classifier, for the split that was asked about."""
    by_split = {fitted_split(space.study): _slopes, judged_split(space.study): _shares}
    if query.split not in by_split:
        raise RefusedError(RefusalCode.MALFORMED)
    check_terms(space)
    n_targets, width = query.parameters.shape
    nothing: dict[str, FloatArray] = {
        "loss": np.zeros(n_targets),
        "pulls": np.zeros((n_targets, width)),
        "hessian": np.zeros((n_targets, width, width)),
        "target_share": np.zeros(n_targets),
        "target_share_variance": np.zeros(n_targets),
    }
    told = by_split[query.split](space, query.split, query.parameters)
    fields: dict[str, Any] = nothing | told
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


def _slopes(space: Workspace, split: RowSplit, classifiers: FloatArray) -> dict[str, FloatArray]:
    """Loss and gradient without labels, and Hessian, by target."""
    from scipy.special import expit  # here, because it is slow to import

    width = classifiers.shape[1]
    losses, pulls = np.zeros(len(classifiers)), np.zeros((len(classifiers), width))
    hessians = np.zeros((len(classifiers), width, width))
    for features, weights, _ in _weighed(space, split):
        for target, parameters in enumerate(classifiers):
            margins = features @ parameters
            chances = expit(margins)
            pull = weights * chances
            curvature = pull * (1 - chances)
            losses[target] += weights @ np.logaddexp(0.0, margins)
            pulls[target] += pull @ features
            hessians[target] += (features * curvature[:, None]).T @ features
    return {"loss": losses, "pulls": pulls, "hessian": hessians}


def _shares(space: Workspace, split: RowSplit, classifiers: FloatArray) -> dict[str, FloatArray]:
    """The share of these rows that each classifier assigns to its target."""
    if split is RowSplit.EVALUATION:
        space.check_held_out()
    if space.n_rows(split) < space.limits.minimum_cell:
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    sums = ColumnSums(len(classifiers))
    for features, weights, groups in _weighed(space, split):
        # One product each: with several at once, the bits would depend on their number.
        taken = [features @ parameters > 0 for parameters in classifiers]
        sums.add(np.column_stack(taken).astype(np.float64), weights, groups)
    rows, _, shares, variances = sums.told(1)
    if not rows.all():
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    return {"target_share": shares, "target_share_variance": variances}
