"""How one policy's decisions split over groups, and how well the logged actions support it."""

from typing import Any

import numpy as np

from fedopl.arrays import FloatArray, IntArray
from fedopl.client.candidates import decisions
from fedopl.client.guards import check_decisions
from fedopl.client.limits import RefusedError
from fedopl.client.workspace import Workspace
from fedopl.wire.vocabulary import Describe, RefusalCode


def describe(space: Workspace, query: Describe, minimum_cell: int) -> dict[str, Any]:
    """The fields of a Description; every count is rounded, so that none tells of single rows."""
    rows = space.training
    contexts = space.data.contexts[rows]
    decided = decisions(space, query, contexts)
    if len(decided) != 1 or (np.diff(query.cuts) < 0).any():
        raise RefusedError(RefusalCode.MALFORMED)
    if minimum_cell:
        check_decisions(decided, space.decisions(rows), minimum_cell)
        space.remember(rows, decided)
    with_one = np.column_stack([contexts, np.ones(len(contexts))])
    bins = [
        np.searchsorted(cuts, column) for cuts, column in zip(query.cuts, with_one.T, strict=True)
    ]
    shape = (query.cuts.shape[1] + 1, space.data.n_actions)
    told: dict[str, FloatArray] = {
        "decided": _counts(bins, decided[0], shape),
        "taken": _counts(bins, space.data.actions[rows], shape),
        "chances": space.support.chances,
    }
    enough = space.rows_per_action >= max(1, minimum_cell)
    effective = np.where(enough, space.support.effective_rows, 0.0)
    return {name: rounded(c, minimum_cell) for name, c in told.items()} | {
        "effective_rows": effective
    }


def rounded(counts: FloatArray, base: int) -> FloatArray:  # shaped as counts
    """Counts to the nearest multiple of the base: neither they nor their differences are exact."""
    return counts if base < 2 else np.round(counts / base) * base


def _counts(
    bins: list[IntArray], codes: IntArray, shape: tuple[int, int]
) -> FloatArray:  # (n_features + 1, n_bins, n_actions)
    """Rows by bin of each feature and by action."""
    n_bins, n_actions = shape
    flat = [np.bincount(b * n_actions + codes, minlength=n_bins * n_actions) for b in bins]
    return np.array(flat, np.float64).reshape(len(bins), n_bins, n_actions)
