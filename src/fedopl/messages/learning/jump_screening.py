"""Screening for thresholds: where outcomes jump, asked before terms are agreed.

Smooth terms cannot represent a jump at one value, or where two numbers both pass a threshold. So
clients first report where their own outcomes jump most, beyond what smooth terms predict. A study
whose `screened_thresholds` is not zero begins with this question. It continues as the study that
also has the thresholds that were found.
"""

from typing import Annotated

from fedopl.base.arrays import FloatArray, largest_size
from fedopl.messages.combining import PerClient
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.plausibility import largest_statistic
from fedopl.policies.basis import candidate_cuts
from fedopl.study.study import Study

MOST_JUMPS_TOLD = 32  # of an action
# The position of a number among features and of a cut among its candidates; those of a second
# number, −1 if there is none; the statistic there, and that in the middle of its part of the grid.
JUMP_NUMBERS = ("first", "first cut", "second", "second cut", "largest", "statistic")
NOT_THERE = -1.0


@message
class JumpStatistics(Message, code=135):
    """For each action, where outcomes jump most, and t-statistics of each.

    Lines of zeros stand for what is not reported: small statistics, or a side with few rows. If
    values are cross-fitted, they are of the rows without each fold and, last, of all rows.
    """

    strongest: Annotated[
        Array, (Axis.VERSIONS, Axis.ACTIONS, Axis.JUMPS_TOLD, Axis.JUMP_NUMBERS), PerClient
    ]


@message
class ScreenJumps(Query[JumpStatistics], code=38, asked=Asked.EACH):
    """Ask at which values, or corners of two, outcomes jump beyond what smooth terms predict."""

    title = "Where outcomes jump"
    content = "for each action, the strongest jumps: which numbers, where, and t-statistics"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether thresholds are to be found, and are not known yet."""
        basis = study.basis
        return basis is not None and not basis.is_screened and basis.screened_thresholds > 0

    def fault_in(self, answer: JumpStatistics, study: Study, n_rows: int) -> str | None:
        """Check that each is about numbers with knots, and what its rows allow."""
        found = answer.strongest
        if (found[..., :-2] % 1).any():
            return "the place of a jump is not a whole number"
        told = found[found[..., -1] != 0]
        if largest_size(told[:, -2:]) > largest_statistic(n_rows):
            return "a statistic is larger than its rows allow"
        if not all(_is_on_grid(line, study) for line in told):
            return "a jump is not on the grid of the study"
        return None


def n_candidates(study: Study) -> dict[int, int]:
    """How many values each number may jump at, by its position among features."""
    knots = study.basis.knots if study.basis else {}
    return {study.features.index(name): len(candidate_cuts(own)) for name, own in knots.items()}


def _is_on_grid(line: FloatArray, study: Study) -> bool:
    numbers: list[float] = line.tolist()
    first, cut, second, second_cut = numbers[:4]
    known = n_candidates(study)
    if not 0 <= cut < known.get(int(first), 0):
        return False
    if second == NOT_THERE:
        return second_cut == NOT_THERE
    return first < second and 0 <= second_cut < known.get(int(second), 0)
