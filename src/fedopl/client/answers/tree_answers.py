"""Answers to what is asked about trees: counts in bins, sums over cells, values of leaves."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.disclosure.cell_suppression import possible_loss, suppress_cells
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.random_rounding import randomly_rounded
from fedopl.client.disclosure.secondary_suppression import has_small_cut
from fedopl.client.disk.store import Arrays
from fedopl.client.local.cell_tables import Binning, cell_sums
from fedopl.client.local.local_tree import as_shares
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.client.scoring.values import JointSums
from fedopl.client.workspace import Workspace
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.trees.bin_counts import CountBins
from fedopl.messages.trees.cell_sums import SumCells
from fedopl.messages.trees.leaf_values import ValueLeaves
from fedopl.policies.trees.grid import Grid
from fedopl.policies.trees.grid_rules import grid_from
from fedopl.policies.trees.growing import DONE
from fedopl.policies.trees.nodes import (
    MOST_NODES,
    Leaf,
    Node,
    depth_of,
    from_array,
    leaf_positions,
    nodes_of,
)
from fedopl.policies.trees.search import FIRST_ACTION, ROWS
from fedopl.policies.trees.tree_plan import LOOK_AHEAD

# As many as a tree has leaves, and one for all that are done or not told.
MOST_GROUPS = MOST_NODES + 1


def count_bins(space: Workspace, query: CountBins, minimum_cell: int) -> dict[str, Any]:
    """The fields of BinCounts; every count is rounded, so that none tells of single rows."""
    if (np.diff(query.cuts) < 0).any():
        raise RefusedError(RefusalCode.MALFORMED)
    found = np.zeros((len(query.cuts), query.cuts.shape[1] + 1))
    for chunk in space.unscored_chunks():
        contexts = chunk.data.contexts[chunk.training]
        cut = zip(space.study.cut_columns, query.cuts, strict=True)
        for place, (column, cuts) in enumerate(cut):
            bins = np.searchsorted(cuts, column.values(contexts))
            found[place] += np.bincount(bins, minlength=found.shape[1])
    if minimum_cell < 2:
        return {"counts": found}
    return {"counts": randomly_rounded(found, minimum_cell, space.rounding_draws(query.cuts))}


def sum_cells(space: Workspace, query: SumCells, needed: int) -> dict[str, Any]:
    """The fields of CellSums, in which no number tells of fewer rows than needed."""
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
    sums = told = as_shares(cell_sums(space.scored_rows(), binning), grid)
    if needed > 1:
        told = suppress_cells(sums, grid, needed, _counts(space, binning, sums.shape[-1]))
    n_open, depth = binning.n_open, min(space.study.tree.depth, LOOK_AHEAD)
    lost = [possible_loss(told[k], sums[k], grid, depth, n_actions) for k in range(n_open)]
    return {"cells": told[:n_open], "lost": np.array(lost)}


def _counts(space: Workspace, binning: Binning, n_numbers: int) -> FloatArray | None:
    """By cell all rows, and for each action those with and without a score, if not all have one."""
    first_known = FIRST_ACTION + space.study.n_actions
    if n_numbers == first_known:
        return None
    plain = cell_sums((replace(rows, weights=None) for rows in space.scored_rows()), binning)
    everybody, known = plain[..., [ROWS]], plain[..., first_known:]
    counts = np.concatenate([everybody, known, everybody - known], axis=-1)
    return counts[..., counts.any(axis=(0, 1))]


def value_leaves(
    space: Workspace, query: ValueLeaves, needed: int, minimum_cell: int
) -> dict[str, Any]:
    """The fields of LeafValues; leaves with few rows are hidden, and never just a few rows."""
    study = space.study
    root = _tree(space, query.tree, range(study.n_actions))
    if not space.n_rows(RowSplit.EVALUATION):
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    decided = np.array([node.action for node in nodes_of(root) if isinstance(node, Leaf)])
    found = _Leaves(len(decided), study.n_actions)
    for chunk in space.chunks():
        rows = chunk.rows(RowSplit.EVALUATION)
        leaf = leaf_positions(root, study.columns, chunk.data.contexts[rows])
        found.add(leaf, chunk.scores[rows], chunk.weights(rows), chunk.groups(rows))
    told = _told_leaves(found.counts, decided, needed)
    if needed > 1:
        _check_leaves(space, query.tree, told, needed)
    counts = found.counts.astype(np.float64)
    if minimum_cell > 1:
        counts = randomly_rounded(counts, minimum_cell, space.rounding_draws(query.tree))
    shares = np.where(told, found.weights / found.weights.sum(), 0.0)
    return {"counts": counts, "shares": shares, **found.fields(told, needed)}


class _Leaves:
    """Sums over the rows of every leaf, and over those that have each action's score."""

    def __init__(self, n_leaves: int, n_actions: int) -> None:
        self._shape = (n_leaves, n_actions)
        self.counts: IntArray = np.zeros(n_leaves, np.int64)
        self.weights = np.zeros(n_leaves)
        self._known = np.zeros(self._shape, np.int64)
        self._sums = [[JointSums() for _ in range(n_actions)] for _ in range(n_leaves)]

    def add(
        self,
        leaf: IntArray,
        scores: FloatArray,
        weights: FloatArray | None,
        groups: IntArray | None,
    ) -> None:
        """Add rows, each in its leaf."""
        n_leaves, n_actions = self._shape
        self.counts += np.bincount(leaf, minlength=n_leaves)
        self.weights += np.bincount(leaf, weights, minlength=n_leaves)
        for place in range(n_leaves):
            own = leaf == place
            weight = None if weights is None else weights[own]
            group = None if groups is None else groups[own]
            for action in range(n_actions):
                score = scores[own, action, None]
                self._known[place, action] += np.count_nonzero(np.isfinite(score))
                self._sums[place][action].add(score, weight, group)

    def fields(self, told: BoolArray, needed: int) -> dict[str, FloatArray]:
        """What each action is worth in each leaf that has rows enough, zeros elsewhere."""
        names = ("rows", "degrees_of_freedom", "means", "variances")
        fields = {name: np.zeros(self._shape) for name in names}
        for action, known in enumerate(self._known.T):
            for place in np.flatnonzero(_told_leaves(known, np.zeros_like(known), needed, told)):
                found = self._sums[place][action].estimate()
                if found is None:
                    continue
                fields["rows"][place, action] = found.n_rows
                fields["degrees_of_freedom"][place, action] = found.degrees_of_freedom
                fields["means"][place, action] = found.means[0]
                fields["variances"][place, action] = found.covariances[0, 0]
        return fields


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


def _check_parts(space: Workspace, numbers: FloatArray, binning: Binning, needed: int) -> None:
    """Refuse parts of the rows from which and from earlier ones a few rows could be had."""

    def labels(item: Arrays) -> Callable[[ScoredChunk], IntArray]:
        root = _tree(space, item["partition"], range(DONE, len(item["partition"])))
        own = replace(binning, partition=root)
        return lambda chunk: own.parts(_usable(chunk))

    _check_groups(space, "parts", {"partition": numbers}, labels, needed)


def _usable(chunk: ScoredChunk) -> FloatArray:  # (n_rows, n_features)
    """The contexts of training rows that have any score."""
    rows = chunk.scored_rows()
    return rows.contexts[rows.usable]


def _check_leaves(space: Workspace, numbers: FloatArray, told: BoolArray, needed: int) -> None:
    """The same for leaves; those that are not told are one group together."""
    study = space.study

    def labels(item: Arrays) -> Callable[[ScoredChunk], IntArray]:
        root, shown = _tree(space, item["tree"], range(study.n_actions)), item["told"] > 0

        def of(chunk: ScoredChunk) -> IntArray:
            contexts = chunk.data.contexts[chunk.rows(RowSplit.EVALUATION)]
            leaf = leaf_positions(root, study.columns, contexts)
            return np.where(shown[leaf], leaf, len(shown))

        return of

    _check_groups(space, "leaves", {"tree": numbers, "told": told}, labels, needed)


def _check_groups(
    space: Workspace,
    what: str,
    item: Arrays,
    labels: Callable[[Arrays], Callable[[ScoredChunk], IntArray]],
    needed: int,
) -> None:
    """Refuse groups of rows from which and from those told before a few rows could be had."""
    earlier = space.history.released(what)
    own, others = labels(item), [labels(one) for one in earlier]
    crossed = [np.zeros((MOST_GROUPS, MOST_GROUPS)) for _ in others]
    for chunk in space.chunks() if others else ():
        group = own(chunk)
        for table, other in zip(crossed, others, strict=True):
            np.add.at(table, (group, other(chunk)), 1.0)
    if any(has_small_cut(_filled(table), needed) for table in crossed):
        raise RefusedError(RefusalCode.SMALL_CELLS)
    space.history.add(what, [item])


def _filled(table: FloatArray) -> FloatArray:
    """The table without the rows and columns behind the last that has a number."""
    used = np.argwhere(table)
    n_rows, n_columns = used.max(axis=0, initial=0) + 1 if len(used) else (1, 1)
    return table[:n_rows, :n_columns]


def _partition(space: Workspace, numbers: FloatArray, grid: Grid) -> Node:
    """The tree of the query, if it is one that a search on this grid could have come to."""
    root = _tree(space, numbers, range(DONE, len(numbers)))
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
