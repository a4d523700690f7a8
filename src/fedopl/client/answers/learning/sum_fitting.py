"""Sums of scores over training rows without the first fold."""

import numpy as np

from fedopl.client.disclosure.small_cells import check_parts
from fedopl.client.workspace import Workspace
from fedopl.messages.learning.score_sums import ScoreSums, SumFitting
from fedopl.messages.message import RowSplit


def answer(space: Workspace, _query: SumFitting) -> ScoreSums:
    """The sums, where neither side of the split rests on a few rows."""
    space.check_rows_for_sums()
    parts = (space.rows(RowSplit.FITTING), space.rows(RowSplit.VALIDATION))
    check_parts(np.isfinite(space.scores), parts, space.rows_needed)
    return ScoreSums(**vars(space.fitting_means()))
