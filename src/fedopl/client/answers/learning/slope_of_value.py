"""Which way the value of a softened policy rises, on training rows but the first fold."""

from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.local.score_means import value_slope
from fedopl.client.workspace import Workspace
from fedopl.messages.learning.value_slope import Slope, SlopeOfValue
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode


def answer(space: Workspace, query: SlopeOfValue) -> Slope:
    """The gradient, unless it rests on a few rows."""
    space.check_rows_for_sums()
    rows = space.rows(RowSplit.FITTING)
    slope, n_effective = value_slope(
        space.data, space.scores, rows, query.parameters, query.temperature
    )
    # A hard policy's slope rests on the few rows where it is undecided.
    if not n_effective >= space.rows_needed:
        raise RefusedError(RefusalCode.SMALL_CELLS)
    return Slope(gradient=slope if space.mask is None else slope * space.mask)
