"""How one policy's decisions split over groups, and how well the logged actions support it."""

from typing import Any

import numpy as np

from fedopl.arrays import FloatArray, IntArray
from fedopl.client.candidates import decisions, n_policies
from fedopl.client.guards import check_decisions, shown_counts
from fedopl.client.limits import RefusedError
from fedopl.client.rounding import rounded, rounding_draws
from fedopl.client.workspace import Workspace
from fedopl.wire.vocabulary import Describe, RefusalCode


def describe(space: Workspace, query: Describe, minimum_cell: int) -> dict[str, Any]:
    """The fields of a Description; every count is rounded, so that none tells of single rows."""
    if n_policies(query) != 1:
        raise RefusedError(RefusalCode.MALFORMED)
    if (np.diff(query.cuts) < 0).any():
        raise RefusedError(RefusalCode.MALFORMED)
    rows = space.training
    contexts = space.data.contexts[rows]
    (decided,) = decisions(space, query, contexts)
    if minimum_cell:
        check_decisions(decided, space.decisions(rows), minimum_cell)
        space.remember(rows, [decided])
    with_one = np.column_stack([contexts, np.ones(len(contexts))])
    bins = [
        np.searchsorted(cuts, column) for cuts, column in zip(query.cuts, with_one.T, strict=True)
    ]
    shape = (query.cuts.shape[1] + 1, space.data.n_actions)
    told: dict[str, FloatArray] = {
        "decided": _counts(bins, decided, shape),
        "taken": _counts(bins, space.data.actions[rows], shape),
        "chances": space.support.chances,
    }
    told["effective_rows"] = _shown(space, minimum_cell)
    if minimum_cell < 2:
        return told
    rng = rounding_draws(space)
    return {name: rounded(counts, minimum_cell, rng) for name, counts in told.items()}


def _shown(space: Workspace, minimum_cell: int) -> FloatArray:  # (n_actions,)
    """Effective rows of the actions whose count of rows is told."""
    told = shown_counts(space.rows_per_action, minimum_cell) > 0
    return np.where(told, space.support.effective_rows, 0.0)


def _counts(
    bins: list[IntArray], codes: IntArray, shape: tuple[int, int]
) -> FloatArray:  # (n_features + 1, n_bins, n_actions)
    """Rows by bin of each feature and by action."""
    n_bins, n_actions = shape
    flat = [np.bincount(b * n_actions + codes, minlength=n_bins * n_actions) for b in bins]
    return np.array(flat, np.float64).reshape(len(bins), n_bins, n_actions)
