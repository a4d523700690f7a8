"""How one policy's decisions divide over groups, and how well the logged actions support it."""

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.answers.asked_policies import deciders, policies_in
from fedopl.client.disclosure.held_values import merged_bins
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disk.disk_array import slices
from fedopl.client.disk.prefetch import prefetched
from fedopl.client.rows.chunks import Chunk
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.description import Describe, Description
from fedopl.messages.refusal import RefusalCode

ROWS_COUNTED_AT_ONCE = 1 << 13


def answer(space: Workspace, query: Describe) -> Description:
    """Counts by group and action; groups of a few rows are merged."""
    if query.n_policies != 1 or (np.diff(query.cuts) < 0).any():
        raise RefusedError(RefusalCode.MALFORMED)
    (decide,) = deciders(space, policies_in(query))
    n_actions = space.study.n_actions
    shape = (2, len(query.cuts), query.cuts.shape[1] + 1, n_actions)

    def counted(chunk: Chunk) -> FloatArray:  # (2, n_features + 1, n_bins, n_actions)
        found = np.zeros(shape)
        for rows in slices(chunk.training.stop, ROWS_COUNTED_AT_ONCE):
            contexts = chunk.data.contexts[rows]
            codes = np.stack([decide(contexts), chunk.data.actions[rows]])
            found += _counts(query.cuts, contexts, codes, n_actions)
        return found

    minimum = space.limits.minimum_cell
    both = sum(prefetched(counted, space.unscored_chunks()), np.zeros(shape))
    decided, taken = _merged(both, minimum)
    chances = space.scored.chances
    shown = space.rows_per_action >= max(minimum, 1)
    return Description(
        decided=decided,
        taken=taken,
        chances=np.where(chances < minimum, 0.0, chances),
        effective_rows=np.where(shown, space.scored.effective_rows, 0.0),
    )


def _merged(
    counts: FloatArray, minimum: int
) -> FloatArray:  # (2, n_features + 1, n_bins, n_actions)
    """The same with the bins of each feature merged that only a few rows are in."""
    found = np.zeros_like(counts)
    for place, rows in enumerate(counts[0].sum(axis=-1)):
        onto = merged_bins(rows.astype(np.int64), minimum)
        np.add.at(found[:, place].swapaxes(0, 1), onto, counts[:, place].swapaxes(0, 1))
    return found


def _counts(
    cuts: FloatArray, contexts: FloatArray, codes: IntArray, n_actions: int
) -> FloatArray:  # (n_codes, n_features + 1, n_bins, n_actions)
    """Rows by bin of each feature, and of a last one that is 1 in every row, and by their codes.

    Those above a cut are counted by a matrix product, which is faster than to look up each row's
    bin: there are few cuts. Single precision counts so few rows exactly.
    """
    is_coded = codes[:, None, :] == np.arange(n_actions)[:, None]
    is_coded = is_coded.reshape(-1, len(contexts)).astype(np.float32)
    of_code = is_coded.sum(axis=1, dtype=np.float64)
    above = [np.broadcast_to(of_code[:, None], (len(of_code), len(cuts)))]
    for own in cuts.T:
        beyond = is_coded @ (contexts > own[:-1]).astype(np.float32)
        above.append(np.column_stack([beyond, of_code * (own[-1] < 1)]))
    above.append(np.zeros_like(above[0]))
    found = -np.diff(np.stack(above, axis=-1), axis=-1)  # (n_codes · n_actions, n_features + 1, …)
    return found.reshape(len(codes), n_actions, len(cuts), -1).transpose(0, 2, 3, 1)
