"""What a tree that was found on a grid would gain from thresholds close to its own."""

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.client.answers.sum_cells import merged_columns
from fedopl.client.disclosure.held_values import merged_bins
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.local.cell_tables import Binning, cell_sums, near_sums
from fedopl.client.workspace import Workspace
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.trees.threshold_gains import SumNearThresholds, ThresholdGains
from fedopl.policies.trees.search import FIRST_ACTION, WEIGHT
from fedopl.policies.trees.second_look import SecondLook


def answer(space: Workspace, query: SumNearThresholds) -> ThresholdGains:
    """Sums over narrow bins; those of a few rows are merged."""
    try:
        looks = query.looks(space.study)
    except ValueError:  # the study does not allow this
        raise RefusedError(RefusalCode.MALFORMED) from None
    if space.limits.minimum_cell > 1:
        space.history.require_first("grid", n_cuts=query.n_cuts, cuts=query.cuts)
    grid = looks[0].grid
    binning = Binning(columns=space.study.columns, grid=grid, merged=merged_columns(space, grid))
    versions = zip(space.study.left_out, looks, strict=True)
    gains = [_gains(space, look, binning, without) for without, look in versions]
    return ThresholdGains(gains=np.concatenate(gains))


def _gains(
    space: Workspace, look: SecondLook, binning: Binning, without: int | None
) -> FloatArray:  # (n_questions, NEAR_BINS)
    """The sums of one version, over the rows that it is learned from."""
    minimum = space.limits.minimum_cell
    cells = cell_sums(space.scored_rows(without), binning)
    known = _known_scores(cells, space.study.n_actions)
    found = near_sums(space.scored_rows(without), look, binning, known)
    gains = np.zeros_like(found.gains)
    for own, told, counts in zip(gains, found.gains, found.counts, strict=True):
        np.add.at(own, merged_bins(counts, minimum), told)
    gains[found.counts.sum(axis=1) < minimum] = 0.0
    # As shares of the total weight, like the cells.
    return np.divide(gains, cells[0, look.grid.whole, WEIGHT].sum() or 1.0)


def _known_scores(cells: FloatArray, n_actions: int) -> BoolArray:  # (n_actions,)
    """The actions for which any row has a score."""
    known: BoolArray = np.any(cells[..., FIRST_ACTION + n_actions :], axis=(0, 1))
    return known if known.size else np.ones(n_actions, bool)
