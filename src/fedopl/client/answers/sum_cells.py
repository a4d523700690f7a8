"""Counts between fine cuts, from which thresholds are agreed, and sums over the cells of a grid."""

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.answers.asked_policies import tree_of
from fedopl.client.disclosure.held_values import merged_bins
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.local.cell_tables import Binning, cell_sums, doubted_rows, with_scored_weight
from fedopl.client.local.local_tree import as_shares
from fedopl.client.workspace import Workspace
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.trees.bin_counts import BinCounts, CountBins
from fedopl.messages.trees.cell_sums import CellSums, SumCells
from fedopl.policies.trees.grid import Grid
from fedopl.policies.trees.growing import ALL_DONE, DONE
from fedopl.policies.trees.nodes import Node, branches_of, depth_of, leaves_of
from fedopl.policies.trees.search import FIRST_ACTION, ROWS, WEIGHT
from fedopl.policies.trees.tree_plan import LOOK_AHEAD


def count_bins(space: Workspace, query: CountBins) -> BinCounts:
    """Training rows between cuts; bins of a few rows are merged."""
    if (np.diff(query.cuts) < 0).any():
        raise RefusedError(RefusalCode.MALFORMED)
    counts = np.zeros((len(query.cuts), query.cuts.shape[1] + 1))
    for chunk in space.unscored_chunks():
        contexts = chunk.data.contexts[chunk.training]
        cut = zip(space.study.cut_columns, query.cuts, strict=True)
        for place, (column, cuts) in enumerate(cut):
            bins = np.searchsorted(cuts, column.values(contexts))
            counts[place] += np.bincount(bins, minlength=counts.shape[1])
    merged = np.zeros_like(counts)
    for own, rows in zip(merged, counts, strict=True):
        np.add.at(own, merged_bins(rows.astype(np.int64), space.limits.minimum_cell), rows)
    return BinCounts(counts=merged)


def sum_cells(space: Workspace, query: SumCells) -> CellSums:
    """The sums of every open node; bins of a few rows are merged, and nodes of a few left out.

    Which bins are merged follows from all training rows, also for trees without one of the folds.
    """
    try:
        grid = query.grid(space.study)
    except ValueError:  # the study does not allow this grid
        raise RefusedError(RefusalCode.MALFORMED) from None
    if space.limits.minimum_cell > 1:
        space.history.require_first("grid", n_cuts=query.n_cuts, cuts=query.cuts)
    partitions = [_partition(space, own, grid) for own in query.partitions]
    columns, merged = space.study.columns, merged_columns(space, grid)
    versions = [
        (without, Binning(columns=columns, grid=grid, partition=partition, merged=merged))
        for without, partition in zip(space.study.left_out, partitions, strict=True)
        if partition != ALL_DONE
    ]
    if not versions:
        raise RefusedError(RefusalCode.MALFORMED)
    found = [cell_sums(space.scored_rows(without), binning) for without, binning in versions]
    widest = max(cells.shape[-1] for cells in found)
    told = [
        _told(space, with_scored_weight(cells, widest), binning, without)
        for cells, (without, binning) in zip(found, versions, strict=True)
    ]
    return CellSums(cells=np.concatenate(told))


def _told(
    space: Workspace, cells: FloatArray, binning: Binning, without: int | None
) -> FloatArray:  # (n_open, n_cells, n_numbers)
    """What is told of these sums over a version's rows: shares of all weight; none of a few."""
    grid = binning.grid
    weight = float(cells[:, grid.whole, WEIGHT].sum())
    told = as_shares(cells, grid)
    if space.study.doubts_leaves:
        doubts = _doubts(space, binning, without) / (weight or 1.0) ** 2
        told = np.concatenate([told, doubts], axis=-1)
    rows = cells[:, grid.whole, ROWS].sum(axis=-1)
    told[rows < space.limits.minimum_cell] = 0.0
    if space.study.tree.cell_numbers == "float32":
        told = told.astype(np.float32)
    return told[: binning.n_open]


def merged_columns(space: Workspace, grid: Grid) -> list[IntArray] | None:
    """For each column, the bin that rows of each bin count for; None where none is merged."""
    minimum = space.limits.minimum_cell
    if minimum < 2:
        return None
    binning = Binning(columns=space.study.columns, grid=grid)
    counts = [np.zeros(n_bins, np.int64) for n_bins in grid.n_bins]
    for rows in space.scored_rows():
        for own, bins in zip(counts, binning.bins(rows.contexts[rows.usable]), strict=True):
            own += np.bincount(bins, minlength=len(own))
    return [merged_bins(own, minimum) for own in counts]


def _doubts(
    space: Workspace, binning: Binning, without: int | None
) -> FloatArray:  # (n_parts, n_cells, n_actions)
    """Σ w²/ê(x; a) by cell and action."""
    shares = space.rows_per_action / max(space.n_training, 1)
    rows = doubted_rows(space.chunks, space.propensities.of, shares, space.obeyed, without)
    n_actions = space.study.n_actions
    return cell_sums(rows, binning)[..., FIRST_ACTION : FIRST_ACTION + n_actions]


def _partition(space: Workspace, numbers: FloatArray, grid: Grid) -> Node:
    """The tree of the query, if a search on this grid could have reached it."""
    root = tree_of(space, numbers, range(DONE, len(numbers)))
    opened = sorted(leaf.action for leaf in leaves_of(root) if leaf.action != DONE)
    if (
        (not opened and root != ALL_DONE)
        or opened != [*range(len(opened))]
        or depth_of(root) > max(space.study.tree.depth - LOOK_AHEAD, 0)
        or any(split.cut not in grid.cuts[split.column] for split in branches_of(root))
    ):
        raise RefusedError(RefusalCode.MALFORMED)
    return root
