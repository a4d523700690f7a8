"""How one policy's decisions split over groups, and how well the logged actions support it."""

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.answers.asked_policies import deciders, policies_in, remembered_as
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.near_identical import differences
from fedopl.client.disclosure.small_cells import suppress_small_counts
from fedopl.client.disk.disk_array import slices
from fedopl.client.disk.prefetch import prefetched
from fedopl.client.rows.chunks import Chunk
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.description import Describe, Description
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode

ROWS_PER_BLOCK = 1 << 14


def answer(space: Workspace, query: Describe) -> Description:
    """Counts by group and action; every one is rounded, so that none discloses single rows."""
    space.check_rows_for_sums()
    if query.n_policies != 1 or (np.diff(query.cuts) < 0).any():
        raise RefusedError(RefusalCode.MALFORMED)
    decide = deciders(space, policies_in(query))[0]
    if space.limits.minimum_cell:
        _check_differs(space, query)
    shape = (len(query.cuts), query.cuts.shape[1] + 1, space.study.n_actions)

    def counted(chunk: Chunk) -> FloatArray:  # (2, n_features + 1, n_bins, n_actions)
        found = np.zeros((2, *shape))
        for rows in slices(chunk.training.stop, ROWS_PER_BLOCK):
            contexts = chunk.data.contexts[rows]
            bins = _bins(query.cuts, contexts)
            found[0] += _counts(bins, decide(contexts), shape[1:])
            found[1] += _counts(bins, chunk.data.actions[rows], shape[1:])
        return found

    decided, taken = sum(prefetched(counted, space.unscored_chunks()), np.zeros((2, *shape)))
    # Effective rows would disclose that there are some where the count of rows is suppressed.
    shown = suppress_small_counts(space.rows_per_action, space.limits.minimum_cell) > 0
    rounded = space.rounding()
    return Description(  # in the order in which random numbers are drawn
        decided=rounded(decided),
        taken=rounded(taken),
        chances=rounded(space.scored.chances),
        effective_rows=rounded(np.where(shown, space.scored.effective_rows, 0.0)),
    )


def _check_differs(space: Workspace, query: Describe) -> None:
    """Refuse a policy that differs in a few rows from any valued or described before."""
    minimum_cell = space.limits.minimum_cell
    what = remembered_as(RowSplit.TRAINING)
    asked = policies_in(query)
    parts = (
        (chunk.data.contexts[chunk.training], np.ones(chunk.training.stop, bool))
        for chunk in space.unscored_chunks()
    )
    earlier = deciders(space, space.history.released(what))
    differ, _ = differences(earlier, deciders(space, asked), parts, minimum_cell)
    if ((differ > 0) & (differ < minimum_cell))[: len(earlier)].any():
        raise RefusedError(RefusalCode.SMALL_CELLS)
    space.history.add(what, asked)


def _bins(cuts: FloatArray, contexts: FloatArray) -> IntArray:  # (n_features + 1, n_rows)
    """The bin of each row by each feature, and by the one that every row has."""
    columns = np.vstack([contexts.T, np.ones(len(contexts))])  # each feature's values together
    # Faster than a search among so few cuts.
    bins = np.zeros(columns.shape, np.int64)
    for own in cuts.T:
        bins += columns > own[:, None]
    return bins


def _counts(
    bins: IntArray, codes: IntArray, shape: tuple[int, int]
) -> FloatArray:  # (n_features + 1, n_bins, n_actions)
    """Rows by bin of each feature and by action."""
    n_bins, n_actions = shape
    cells = bins * n_actions + codes
    flat = [np.bincount(own, minlength=n_bins * n_actions) for own in cells]
    return np.array(flat, np.float64).reshape(len(bins), n_bins, n_actions)
