"""How one policy's decisions divide over groups, and how well the logged actions support it."""

from itertools import chain

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.answers.asked_policies import deciders, policies_in
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.small_cells import suppress_small_counts
from fedopl.client.disk.disk_array import slices
from fedopl.client.disk.prefetch import prefetched
from fedopl.client.rows.chunks import Chunk
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.description import Describe, Description
from fedopl.messages.refusal import RefusalCode

ROWS_COUNTED_AT_ONCE = 1 << 14


def answer(space: Workspace, query: Describe) -> Description:
    """Counts by group and action, with noise, so that none discloses single rows."""
    space.check_rows_for_sums()
    if query.n_policies != 1 or (np.diff(query.cuts) < 0).any():
        raise RefusedError(RefusalCode.MALFORMED)
    (asked,) = policies_in(query)
    (decide,) = deciders(space, [asked])
    shape = (len(query.cuts), query.cuts.shape[1] + 1, space.study.n_actions)

    def counted(chunk: Chunk) -> FloatArray:  # (2, n_features + 1, n_bins, n_actions)
        found = np.zeros((2, *shape))
        for rows in slices(chunk.training.stop, ROWS_COUNTED_AT_ONCE):
            contexts = chunk.data.contexts[rows]
            bins = _bins(query.cuts, contexts)
            found[0] += _counts(bins, decide(contexts), shape[1:])
            found[1] += _counts(bins, chunk.data.actions[rows], shape[1:])
        return found

    decided, taken = sum(prefetched(counted, space.unscored_chunks()), np.zeros((2, *shape)))
    chances = space.noisy(space.scored.chances, "chances")
    # So few rows are as likely to be noise, and would be taken for poor overlap.
    chances[chances < 4 * space.limits.minimum_cell] = 0.0
    return Description(
        decided=space.noisy(decided, "decided", query.cuts, *chain(*asked.items())),
        taken=space.noisy(taken, "taken", query.cuts),
        chances=chances,
        effective_rows=_shown_effective_rows(space),
    )


def _shown_effective_rows(space: Workspace) -> FloatArray:  # (n_actions,)
    """Effective rows of the actions whose count of rows is not suppressed."""
    shown = suppress_small_counts(space.rows_per_action, space.limits.minimum_cell) > 0
    return np.where(shown, space.noisy(space.scored.effective_rows, "effective rows"), 0.0)


def _bins(cuts: FloatArray, contexts: FloatArray) -> IntArray:  # (n_features + 1, n_rows)
    """The bin of each row by each feature, and by a last feature that is one in every row."""
    columns = np.vstack([contexts.T, np.ones(len(contexts))])  # each feature's values together
    # Faster than a binary search, because there are few cuts.
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
