"""Sums for outcome models, apart for each fold and action."""

from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.small_cells import releasable_cells
from fedopl.client.workspace import Workspace
from fedopl.messages.learning.outcome_sums import OutcomeSums, SumOutcomes
from fedopl.messages.refusal import RefusalCode


def answer(space: Workspace, _query: SumOutcomes) -> OutcomeSums:
    """The sums of every fold and action that has enough rows; the others are zero."""
    enough = releasable_cells(space.rows_by_fold_action, space.rows_needed)
    if not enough.any():
        raise RefusedError(RefusalCode.SMALL_CELLS)
    sums, squared_weights = space.outcome_sums()
    if not enough.all():
        sums[~enough], squared_weights[~enough] = 0.0, 0.0
    return OutcomeSums(sums=sums, squared_weights=squared_weights)
