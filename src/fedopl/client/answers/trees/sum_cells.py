"""Sums of scores over the cells of a tree's grid, with small cells suppressed."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.answers.trees.released_groups import check_groups, tree_of
from fedopl.client.disclosure.cell_suppression import possible_loss, suppress_cells
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disk.store import Arrays
from fedopl.client.local.cell_tables import Binning, cell_sums
from fedopl.client.local.local_tree import as_shares
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.client.workspace import Workspace
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.trees.cell_sums import CellSums, SumCells
from fedopl.policies.trees.grid import Grid
from fedopl.policies.trees.growing import DONE
from fedopl.policies.trees.nodes import Leaf, Node, depth_of, nodes_of
from fedopl.policies.trees.search import FIRST_ACTION, ROWS
from fedopl.policies.trees.tree_plan import LOOK_AHEAD


def answer(space: Workspace, query: SumCells) -> CellSums:
    """The sums of every open node, in which no number rests on fewer rows than needed."""
    needed = space.limits.rows_needed(space.study.n_actions)
    grid = _grid(space, query)
    binning = Binning(
        columns=space.study.columns,
        grid=grid,
        partition=_partition(space, query.partition, grid),
    )
    n_actions = space.study.n_actions
    if needed > 1:
        space.history.require_same_grid(query.n_cuts, query.cuts)
        _check_parts(space, query.partition, binning, needed)
    sums = released = as_shares(cell_sums(space.scored_rows(), binning), grid)
    if needed > 1:
        released = suppress_cells(sums, grid, needed, _counts(space, binning, sums.shape[-1]))
    n_open, depth = binning.n_open, min(space.study.tree.depth, LOOK_AHEAD)
    lost = [possible_loss(released[k], sums[k], grid, depth, n_actions) for k in range(n_open)]
    return CellSums(cells=released[:n_open], lost=np.array(lost))


def _counts(space: Workspace, binning: Binning, n_numbers: int) -> FloatArray | None:
    """By cell all rows, and for each action those with and without a score, if not all have one."""
    first_known = FIRST_ACTION + space.study.n_actions
    if n_numbers == first_known:
        return None
    plain = cell_sums((replace(rows, weights=None) for rows in space.scored_rows()), binning)
    everybody, known = plain[..., [ROWS]], plain[..., first_known:]
    counts = np.concatenate([everybody, known, everybody - known], axis=-1)
    return counts[..., counts.any(axis=(0, 1))]


def _check_parts(space: Workspace, numbers: FloatArray, binning: Binning, needed: int) -> None:
    """Refuse a partition from which, with earlier ones, a few rows could be isolated."""

    def labels(item: Arrays) -> Callable[[ScoredChunk], IntArray]:
        root = tree_of(space, item["partition"], range(DONE, len(item["partition"])))
        own = replace(binning, partition=root)
        return lambda chunk: own.parts(_usable(chunk))

    check_groups(space, "parts", {"partition": numbers}, labels, needed)


def _usable(chunk: ScoredChunk) -> FloatArray:  # (n_rows, n_features)
    """The contexts of training rows that have any score."""
    rows = chunk.scored_rows()
    return rows.contexts[rows.usable]


def _partition(space: Workspace, numbers: FloatArray, grid: Grid) -> Node:
    """The tree of the query, if it is one that a search on this grid could have come to."""
    root = tree_of(space, numbers, range(DONE, len(numbers)))
    leaves = [node.action for node in nodes_of(root) if isinstance(node, Leaf)]
    opened = sorted(leaf for leaf in leaves if leaf != DONE)
    if not opened or opened != [*range(len(opened))]:
        raise RefusedError(RefusalCode.MALFORMED)
    if depth_of(root) > max(space.study.tree.depth - LOOK_AHEAD, 0):
        raise RefusedError(RefusalCode.MALFORMED)
    splits = (node for node in nodes_of(root) if not isinstance(node, Leaf))
    if any(split.cut not in grid.cuts[split.column] for split in splits):
        raise RefusedError(RefusalCode.MALFORMED)
    return root


def _grid(space: Workspace, query: SumCells) -> Grid:
    """The grid of the query, if it is one that the study allows."""
    try:
        return query.grid(space.study)
    except ValueError:
        raise RefusedError(RefusalCode.MALFORMED) from None
