"""Rows close to the thresholds of a tree, and what other thresholds would gain with them."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.disclosure.cells.cell_suppression import Suppression
from fedopl.client.local.cell_tables import Binning
from fedopl.client.rows.chunks import ScoredRows
from fedopl.policies.trees.nodes import Branch, leaf_positions, leaves_of
from fedopl.policies.trees.second_look import NEAR_BINS, SecondLook

# A row's path from a question on: its leaf if it answered yes, and its leaf if it answered no. Up
# to depth two, each side has at most two leaves.
N_WAYS = 4


@dataclass(frozen=True, eq=False)
class NearSums:
    """Sums over the rows that matter for a threshold, by question and narrow bin."""

    gains: FloatArray  # (n_questions, NEAR_BINS): Σ w·(Γ(yes) − Γ(no))
    # By column of the grid: rows by question, narrow bin, path, and the column's own bin.
    counts: list[FloatArray]  # each (n_questions, NEAR_BINS, N_WAYS, n_bins)


def near_sums(
    parts: Iterable[ScoredRows],
    look: SecondLook,
    binning: Binning,
    known: BoolArray,
    first: Suppression | None = None,
) -> NearSums:
    """The sums over all these rows.

    Three kinds of rows do not count. For some, both answers lead to the same decision. Some lack
    the score of a `known` action. Some are in a cell of two of the tree's columns that was
    suppressed on the grid.
    """
    shape = (len(look.questions), NEAR_BINS)
    gains = np.zeros(shape)
    counts = [np.zeros((*shape, N_WAYS, n_bins)) for n_bins in binning.grid.n_bins]
    for rows in parts:
        own = rows.usable & np.isfinite(rows.scores[:, known]).all(axis=1)
        contexts, scores = rows.contexts[own], rows.scores[own]
        weights = np.ones(len(scores)) if rows.weights is None else rows.weights[own]
        bins = [np.asarray(column, np.int64) for column in binning.bins(contexts)]
        told = _in_released_cells(bins, look, first)
        for place in look.moving:
            here = np.flatnonzero(told & look.comes_to(place, binning.columns, contexts))
            branch = look.questions[place][0]
            way, difference = _ways_on(branch, binning, contexts[here], scores[here])
            decides = (way >= 0) & np.isfinite(difference)
            here, way, difference = here[decides], way[decides], difference[decides]
            values = binning.columns[branch.column].values(contexts[here])
            near = np.searchsorted(look.near[place], values)
            gains[place] += np.bincount(near, weights[here] * difference, minlength=NEAR_BINS)
            for column, table in enumerate(counts):
                np.add.at(table[place], (near, way, bins[column][here]), 1.0)
    return NearSums(gains, counts)


def _ways_on(
    branch: Branch, binning: Binning, contexts: FloatArray, scores: FloatArray
) -> tuple[IntArray, FloatArray]:
    """The path of each row, −1 where both sides decide alike, and Γ(yes) − Γ(no)."""
    columns, rows = tuple(binning.columns), np.arange(len(contexts))
    leaves = [leaf_positions(side, columns, contexts) for side in (branch.yes, branch.no)]
    yes, no = (
        np.array([leaf.action for leaf in leaves_of(side)])[own]
        for side, own in zip((branch.yes, branch.no), leaves, strict=True)
    )
    way = np.where(yes == no, -1, 2 * leaves[0] + leaves[1])
    return way, scores[rows, yes] - scores[rows, no]


def _in_released_cells(
    bins: list[IntArray], look: SecondLook, first: Suppression | None
) -> BoolArray:  # (n_rows,)
    """Whether rows are in no suppressed cell of two columns that the tree asks about."""
    told = np.ones(len(bins[0]), bool)
    if first is None:
        return told
    asked = {branch.column for branch, _ in look.questions}
    for pair, suppressed in first.cells.items():
        if asked.issuperset(pair):
            told &= ~suppressed[tuple(first.run_of(column)[bins[column]] for column in pair)]
    return told
