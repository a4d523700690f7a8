"""Checks that groups of rows cannot be differenced against groups released before."""

from collections.abc import Callable

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.disclosure.cells.secondary_suppression import has_small_cut
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disk.store import Arrays
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.client.workspace import Workspace
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.trees.nodes import MOST_NODES, Node, from_array

# One for each leaf of a tree, and one for all rows that are finished or suppressed.
MOST_GROUPS = MOST_NODES + 1


def check_groups(
    space: Workspace,
    what: str,
    item: Arrays,
    labels: Callable[[Arrays], Callable[[ScoredChunk], IntArray]],
    needed: int,
) -> None:
    """Refuse groups that, combined with those released before, could isolate a few rows."""
    earlier = space.history.released(what)
    own, others = labels(item), [labels(one) for one in earlier]
    crossed = [np.zeros((MOST_GROUPS, MOST_GROUPS)) for _ in others]
    for chunk in space.chunks() if others else ():
        group = own(chunk)
        for table, other in zip(crossed, others, strict=True):
            np.add.at(table, (group, other(chunk)), 1.0)
    # The search for a cut takes long in a large table, and groups without rows add nothing.
    filled = (table[table.any(axis=1)][:, table.any(axis=0)] for table in crossed)
    if any(has_small_cut(table, needed) for table in filled):
        raise RefusedError(RefusalCode.SMALL_CELLS)
    space.history.add(what, [item])


def tree_of(space: Workspace, numbers: FloatArray, leaves: range) -> Node:
    """The tree in these numbers; refused if it does not fit this study."""
    try:
        return from_array(numbers, space.study.columns, leaves)
    except ValueError:
        raise RefusedError(RefusalCode.MALFORMED) from None
