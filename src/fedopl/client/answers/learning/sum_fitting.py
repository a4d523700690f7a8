"""Sums of scores over training rows without the first fold."""

import numpy as np

from fedopl.client.disclosure.small_cells import check_parts
from fedopl.client.local.score_means import score_means
from fedopl.client.workspace import Workspace
from fedopl.messages.learning.score_sums import ScoreSums, SumFitting
from fedopl.messages.message import RowSplit


def answer(space: Workspace, _query: SumFitting) -> ScoreSums:
    """The sums, where neither side of the split rests on a few rows."""
    space.check_rows_for_sums()
    parts = (space.rows(RowSplit.FITTING), space.rows(RowSplit.VALIDATION))
    check_parts(np.isfinite(space.scores), parts, space.rows_needed)
    fitting, validation = parts
    # The means over all training rows are released, too: differencing gives those of the first
    # fold. So a value is masked that few rows of either side have.
    sides = np.zeros(space.n_training, np.int64)
    sides[validation] = 1
    data = space.masked_by_cell(sides)
    return ScoreSums(**vars(score_means(data, space.scores, fitting, space.blocks)))
