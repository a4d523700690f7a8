"""Counts rows that repeat another exactly, unless rows of such columns agree by chance."""

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.seeds import generator_for
from fedopl.client.rows.row_keys import row_keys
from fedopl.client.table.logged_data import LoggedData

# The share of rows that may repeat another row without consequence.
FEW_REPEATED = 0.001


def n_repeated_rows(data: LoggedData) -> int:
    """How many rows agree with another in everything, if that is not a coincidence.

    Rows of a few coarse columns agree by chance. So rows are counted again in two ways: with other
    actions and outcomes beside the contexts, and with each column shuffled by itself, because one
    column may follow from another. Only if both counts are less than half do the rows point to
    duplicates.
    """
    rng = generator_for(0, purpose="repeated rows")
    repeated = _n_alike(data.contexts, data.actions, data.rewards)
    if not repeated or repeated < FEW_REPEATED * data.n_rows:
        return 0
    order = rng.permutation(data.n_rows)
    other_outcomes = _n_alike(data.contexts, data.actions[order], data.rewards[order])
    columns = [rng.permutation(column) for column in data.contexts.T]
    shuffled = np.ascontiguousarray(np.column_stack(columns))
    other_contexts = _n_alike(shuffled, data.actions, data.rewards)
    return repeated if repeated > 2 * max(other_outcomes, other_contexts) else 0


def _n_alike(contexts: FloatArray, actions: IntArray, rewards: FloatArray) -> int:
    """How many rows agree with another in everything; contexts are compared by a hash."""
    (keys,) = row_keys(contexts, 0, ("repeated rows",))
    order = np.lexsort((rewards, actions, keys))
    same = np.ones(len(actions) - 1, bool)
    for column in (keys, actions, rewards):
        same &= column[order][1:] == column[order][:-1]
    return int(same.sum())
