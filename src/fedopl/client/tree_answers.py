"""Answers to what is asked about trees: counts in bins, sums over cells, values of leaves."""

from dataclasses import replace
from typing import Any

import numpy as np

from fedopl.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.cells import Binning, ScoredRows, cell_sums
from fedopl.client.hiding import guarded_cells, possible_loss, rests_on_few
from fedopl.client.limits import RefusedError
from fedopl.client.rounding import rounded, rounding_draws
from fedopl.client.tree_alone import as_shares
from fedopl.client.values import joint_estimate
from fedopl.client.workspace import Workspace
from fedopl.policies.tree import Leaf as TreeLeaf
from fedopl.policies.tree import Node, depth_of, from_array, leaf_positions, nodes_of
from fedopl.trees.grid import Grid
from fedopl.trees.growing import DONE
from fedopl.trees.plan import LOOK_AHEAD
from fedopl.trees.rules import grid_from
from fedopl.trees.search import FIRST_ACTION, ROWS
from fedopl.wire.vocabulary import CountBins, RefusalCode, Split, SumCells, ValueLeaves


def count_bins(space: Workspace, query: CountBins, minimum_cell: int) -> dict[str, Any]:
    """The fields of BinCounts; every count is rounded, so that none tells of single rows."""
    if (np.diff(query.cuts) < 0).any():
        raise RefusedError(RefusalCode.MALFORMED)
    contexts = space.data.contexts[space.training]
    n_bins = query.cuts.shape[1] + 1
    counts = [
        np.bincount(np.searchsorted(cuts, column.values(contexts)), minlength=n_bins)
        for column, cuts in zip(space.study.cut_columns, query.cuts, strict=True)
    ]
    found = np.array(counts, np.float64)
    if minimum_cell < 2:
        return {"counts": found}
    return {"counts": rounded(found, minimum_cell, rounding_draws(space, query.cuts))}


def sum_cells(space: Workspace, query: SumCells, needed: int) -> dict[str, Any]:
    """The fields of CellSums, in which no number tells of fewer rows than needed."""
    grid = _grid(space, query)
    binning = Binning(
        columns=space.study.columns,
        grid=grid,
        partition=_partition(space, query.partition, grid),
    )
    rows, n_actions = space.scored_rows(space.scores), space.study.n_actions
    if needed > 1:
        space.agree_on_grid(query.n_cuts, query.cuts)
        parts = binning.parts(rows.contexts[rows.usable])
        _check_differences(space, rows.usable, parts, "parts", needed)
    sums = told = as_shares(cell_sums(rows, binning), grid)
    if needed > 1:
        told = guarded_cells(sums, grid, needed, _counts(rows, binning, sums.shape[-1]))
    n_open, depth = binning.n_open, min(space.study.tree.depth, LOOK_AHEAD)
    lost = [possible_loss(told[k], sums[k], grid, depth, n_actions) for k in range(n_open)]
    return {"cells": told[:n_open], "lost": np.array(lost)}


def _counts(rows: ScoredRows, binning: Binning, n_numbers: int) -> FloatArray | None:
    """By cell all rows, and for each action those with and without a score, if not all have one."""
    first_known = FIRST_ACTION + rows.scores.shape[1]
    if n_numbers == first_known:
        return None
    plain = cell_sums(replace(rows, weights=None), binning)
    everybody, known = plain[..., [ROWS]], plain[..., first_known:]
    counts = np.concatenate([everybody, known, everybody - known], axis=-1)
    return counts[..., counts.any(axis=(0, 1))]


def value_leaves(
    space: Workspace, query: ValueLeaves, needed: int, minimum_cell: int
) -> dict[str, Any]:
    """The fields of LeafValues; leaves with few rows are hidden, and never just a few rows."""
    study, data = space.study, space.data
    root = _tree(space, query.tree, range(study.n_actions))
    rows = space.rows(Split.EVALUATION)
    if not rows.any():
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    leaf = leaf_positions(root, study.columns, data.contexts[rows])
    scores = space.scores[rows]
    decided = np.array([node.action for node in nodes_of(root) if isinstance(node, TreeLeaf)])
    n_leaves = len(decided)
    told = _told_leaves(np.bincount(leaf, minlength=n_leaves), decided, needed)
    if needed > 1:
        _check_differences(space, rows, np.where(told[leaf], leaf, n_leaves), "leaves", needed)
    weights = None if data.weights is None else data.weights[rows]
    groups = None if data.groups is None else data.groups[rows]
    whole = np.ones(len(leaf)) if weights is None else weights
    shares = np.bincount(leaf, whole, minlength=n_leaves) / whole.sum()
    shape = (n_leaves, study.n_actions)
    fields = {
        name: np.zeros(shape) for name in ("rows", "degrees_of_freedom", "means", "variances")
    }
    for action in range(study.n_actions):
        known = np.bincount(leaf[np.isfinite(scores[:, action])], minlength=n_leaves)
        for place in np.flatnonzero(_told_leaves(known, np.zeros_like(decided), needed, told)):
            own = leaf == place
            found = joint_estimate(
                scores[own, action, None],
                None if weights is None else weights[own],
                None if groups is None else groups[own],
            )
            if found is None:
                continue
            fields["rows"][place, action] = found.n_rows
            fields["degrees_of_freedom"][place, action] = found.degrees_of_freedom
            fields["means"][place, action] = found.means[0]
            fields["variances"][place, action] = found.covariances[0, 0]
    counts = np.bincount(leaf, minlength=n_leaves).astype(np.float64)
    if minimum_cell > 1:
        counts = rounded(counts, minimum_cell, rounding_draws(space, query.tree))
    return {"counts": counts, "shares": np.where(told, shares, 0.0), **fields}


def _told_leaves(
    counts: IntArray, decided: IntArray, needed: int, among: BoolArray | None = None
) -> BoolArray:  # (n_leaves,)
    """Leaves with enough rows, but for those that would tell of the others by subtraction.

    What is hidden is known in all, for each action and for the one that the tree decides on. These
    differ in the rows where the tree decides on another: none, or enough. If hiding one more leaf
    is enough, it is the smallest such leaf.
    """
    told: BoolArray = (counts >= needed) & (counts > 0)
    told &= True if among is None else among
    while _tell_of_few(counts, decided, told, needed):
        more = np.flatnonzero(told).tolist()
        alone = [
            place for place in more if not _tell_of_few(counts, decided, _less(told, place), needed)
        ]
        told = _less(told, min(alone or more, key=lambda place: counts[place]))
    return told


def _tell_of_few(counts: IntArray, decided: IntArray, told: BoolArray, needed: int) -> bool:
    left = np.bincount(decided, np.where(told, 0, counts))
    others = np.append(left.sum() - left, left.sum())
    return bool(told.any() and ((others > 0) & (others < needed)).any())


def _less(told: BoolArray, place: int) -> BoolArray:
    fewer = told.copy()
    fewer[place] = False
    return fewer


def _check_differences(
    space: Workspace, rows: BoolArray, group: IntArray, what: str, needed: int
) -> None:
    """Refuse groups of rows from which and from earlier ones a few rows could be had."""
    for known in space.decisions(rows, what):
        crossed = np.zeros((int(group.max()) + 1, int(known.max()) + 1))
        np.add.at(crossed, (group, known), 1.0)
        if rests_on_few(crossed, needed):
            raise RefusedError(RefusalCode.SMALL_CELLS)
    space.remember(rows, [group], what)


def _partition(space: Workspace, numbers: FloatArray, grid: Grid) -> Node:
    """The tree of the query, if it is one that a search on this grid could have come to."""
    root = _tree(space, numbers, range(DONE, len(numbers)))
    leaves = [node.action for node in nodes_of(root) if isinstance(node, TreeLeaf)]
    opened = sorted(leaf for leaf in leaves if leaf != DONE)
    if not opened or opened != [*range(len(opened))]:
        raise RefusedError(RefusalCode.MALFORMED)
    if depth_of(root) > max(space.study.tree.depth - LOOK_AHEAD, 0):
        raise RefusedError(RefusalCode.MALFORMED)
    splits = (node for node in nodes_of(root) if not isinstance(node, TreeLeaf))
    if any(split.cut not in grid.cuts[split.column] for split in splits):
        raise RefusedError(RefusalCode.MALFORMED)
    return root


def _tree(space: Workspace, numbers: FloatArray, leaves: range) -> Node:
    try:
        return from_array(numbers, space.study.columns, leaves)
    except ValueError:
        raise RefusedError(RefusalCode.MALFORMED) from None


def _grid(space: Workspace, query: SumCells) -> Grid:
    """The grid of the query, if it is one that the study allows."""
    study = space.study
    try:
        return grid_from(study.tree, study.columns, query.n_cuts, query.cuts)
    except ValueError:
        raise RefusedError(RefusalCode.MALFORMED) from None
