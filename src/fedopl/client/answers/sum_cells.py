"""Counts between fine cuts, from which thresholds are agreed, and sums over the cells of a grid."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.answers.released_groups import check_groups, tree_of
from fedopl.client.disclosure.cells.cell_suppression import possible_loss, suppress_cells
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disk.passes import mapped
from fedopl.client.disk.store import Arrays
from fedopl.client.local.cell_doubts import doubted_rows
from fedopl.client.local.cell_tables import Binning, cell_sums
from fedopl.client.local.local_tree import as_shares
from fedopl.client.rows.chunks import ScoredChunk, ScoredRows
from fedopl.client.workspace import Workspace
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.trees.bin_counts import BinCounts, CountBins
from fedopl.messages.trees.cell_sums import CellSums, SumCells
from fedopl.policies.trees.grid import Grid
from fedopl.policies.trees.growing import DONE
from fedopl.policies.trees.nodes import Node, branches_of, depth_of, leaves_of
from fedopl.policies.trees.search import FIRST_ACTION, ROWS, WEIGHT
from fedopl.policies.trees.tree_plan import LOOK_AHEAD


def count_bins(space: Workspace, query: CountBins) -> BinCounts:
    """Training rows between cuts, with noise, so that even a narrow bin discloses no single row."""
    if (np.diff(query.cuts) < 0).any():
        raise RefusedError(RefusalCode.MALFORMED)
    counts = np.zeros((len(query.cuts), query.cuts.shape[1] + 1))
    for chunk in space.unscored_chunks():
        contexts = chunk.data.contexts[chunk.training]
        cut = zip(space.study.cut_columns, query.cuts, strict=True)
        for place, (column, cuts) in enumerate(cut):
            bins = np.searchsorted(cuts, column.values(contexts))
            counts[place] += np.bincount(bins, minlength=counts.shape[1])
    return BinCounts(counts=space.noisy(counts, "bins", query.cuts))


def sum_cells(space: Workspace, query: SumCells) -> CellSums:
    """The sums of every open node; no number rests on fewer rows than needed."""
    n_actions, is_doubted = space.study.n_actions, space.study.doubts_leaves
    needed = space.limits.rows_needed(n_actions * (1 + is_doubted))
    try:
        grid = query.grid(space.study)
    except ValueError:  # the study does not allow this grid
        raise RefusedError(RefusalCode.MALFORMED) from None
    partition = _partition(space, query.partition, grid)
    binning = Binning(columns=space.study.columns, grid=grid, partition=partition)
    if needed > 1:
        space.history.require_first("grid", n_cuts=query.n_cuts, cuts=query.cuts)
        _check_parts(space, query.partition, binning, needed)
    cells = cell_sums(space.scored_rows(), binning)
    weight = float(cells[:, grid.whole, WEIGHT].sum())
    sums = told = as_shares(cells, grid)
    n_numbers = sums.shape[-1]
    if is_doubted:
        told = np.concatenate([sums, _doubts(space, binning) / (weight or 1.0) ** 2], axis=-1)
    if needed > 1:
        counts = with_lacking(counts_by_score(space, binning, n_numbers))
        told = suppress_cells(told, grid, needed, counts)
    if space.study.tree.cell_numbers == "float32":
        told = told.astype(np.float32)
    n_open, depth = binning.n_open, min(space.study.tree.depth, LOOK_AHEAD)
    released = told[..., :n_numbers].astype(np.float64)
    lost = [possible_loss(released[k], sums[k], grid, depth, n_actions) for k in range(n_open)]
    return CellSums(cells=told[:n_open], lost=np.array(lost))


def _doubts(space: Workspace, binning: Binning) -> FloatArray:  # (n_parts, n_cells, n_actions)
    """Σ w²/ê(x; a) by cell and action."""
    shares = space.rows_per_action / max(space.n_training, 1)
    rows = doubted_rows(space.chunks, space.propensities.of, shares, space.obeyed)
    n_actions = space.study.n_actions
    return cell_sums(rows, binning)[..., FIRST_ACTION : FIRST_ACTION + n_actions]


def counts_by_score(space: Workspace, binning: Binning, n_numbers: int) -> FloatArray | None:
    """All rows by cell, and the rows with each action's score, if not all have one."""
    first_known = FIRST_ACTION + space.study.n_actions
    if n_numbers == first_known:
        return None
    plain = cell_sums(mapped(_unweighted, space.scored_rows()), binning)
    return np.concatenate([plain[..., [ROWS]], plain[..., first_known:]], axis=-1)


def _unweighted(rows: ScoredRows) -> ScoredRows:
    return replace(rows, weights=None)


def with_lacking(counts: FloatArray | None) -> FloatArray | None:
    """The counts, and the rows that lack each action's score; kinds without rows are left out."""
    if counts is None:
        return None
    every = np.concatenate([counts, counts[..., [ROWS]] - counts[..., 1:]], axis=-1)
    return every[..., every.any(axis=(0, 1))]


def _check_parts(space: Workspace, numbers: FloatArray, binning: Binning, needed: int) -> None:
    """Refuse a partition that, combined with earlier ones, could isolate a few rows."""

    def labels(item: Arrays) -> Callable[[ScoredChunk], IntArray]:
        root = tree_of(space, item["partition"], range(DONE, len(item["partition"])))
        own = replace(binning, partition=root)

        def parts(chunk: ScoredChunk) -> IntArray:
            rows = chunk.scored_rows()
            return own.parts(rows.contexts[rows.usable])

        return parts

    check_groups(space, "parts", {"partition": numbers}, labels, needed)


def _partition(space: Workspace, numbers: FloatArray, grid: Grid) -> Node:
    """The tree of the query, if a search on this grid could have reached it."""
    root = tree_of(space, numbers, range(DONE, len(numbers)))
    opened = sorted(leaf.action for leaf in leaves_of(root) if leaf.action != DONE)
    if (
        not opened
        or opened != [*range(len(opened))]
        or depth_of(root) > max(space.study.tree.depth - LOOK_AHEAD, 0)
        or any(split.cut not in grid.cuts[split.column] for split in branches_of(root))
    ):
        raise RefusedError(RefusalCode.MALFORMED)
    return root
