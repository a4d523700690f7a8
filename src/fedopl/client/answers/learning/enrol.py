"""Taking part: how many rows there are, and how many took each action."""

import numpy as np

from fedopl.client.disclosure.small_cells import suppress_small_counts
from fedopl.client.workspace import Workspace
from fedopl.messages.learning.enrolment import Enrol, Enrolment


def answer(space: Workspace, _query: Enrol) -> Enrolment:
    """The rows to learn from; small counts are suppressed."""
    counts = space.rows_per_action
    shown = suppress_small_counts(counts, space.limits.minimum_cell)
    return Enrolment(n_rows=int(counts.sum()), rows_per_action=shown.astype(np.float64))
