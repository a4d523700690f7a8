"""What a tree that was found on a grid would gain from thresholds close to its own."""

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.client.answers.sum_cells import counts_by_score, with_lacking
from fedopl.client.disclosure.cells.cell_suppression import suppression_of
from fedopl.client.disclosure.cells.near_suppression import Beside, release_gains
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.local.cell_tables import Binning, cell_sums
from fedopl.client.local.near_rows import near_sums
from fedopl.client.workspace import Workspace
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.trees.threshold_gains import SumNearThresholds, ThresholdGains
from fedopl.policies.trees.search import FIRST_ACTION, ROWS, WEIGHT


def answer(space: Workspace, query: SumNearThresholds) -> ThresholdGains:
    """Sums over narrow bins; none discloses a few rows when combined with the cells of the grid."""
    try:
        look = query.look(space.study)
    except ValueError:  # the study does not allow this
        raise RefusedError(RefusalCode.MALFORMED) from None
    needed = space.limits.rows_needed(space.study.n_actions)
    if needed > 1:
        space.history.require_first("grid", n_cuts=query.n_cuts, cuts=query.cuts)
        space.history.require_first("near", tree=query.tree, near=query.near)
    binning = Binning(columns=space.study.columns, grid=look.grid)
    cells = cell_sums(space.scored_rows(), binning)
    first, layers = None, cells[0, :, [ROWS]]
    if needed > 1:
        counts = counts_by_score(space, binning, cells.shape[-1])
        if counts is not None:
            layers = counts[0].T[counts[0].any(axis=0)]
        rows = with_lacking(counts)
        first = suppression_of(cells[..., [ROWS]] if rows is None else rows, look.grid, needed)
    known = _known_scores(cells, space.study.n_actions)
    found = near_sums(space.scored_rows(), look, binning, known, first)
    # As shares of the total weight, like the cells.
    gains = found.gains / (cells[0, look.grid.whole, WEIGHT].sum() or 1.0)
    if first is not None:
        beside = Beside(layers=layers, grid=look.grid, suppression=first, needed=needed)
        gains = release_gains(gains, found.counts, look, beside)
    return ThresholdGains(gains=gains)


def _known_scores(cells: FloatArray, n_actions: int) -> BoolArray:  # (n_actions,)
    """The actions for which any row has a score."""
    known: BoolArray = np.any(cells[..., FIRST_ACTION + n_actions :], axis=(0, 1))
    return known if known.size else np.ones(n_actions, bool)
