"""Counts of rows between fine cuts, from which a tree's thresholds are agreed."""

from typing import Annotated

from fedopl.messages.combining import Sum
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.plausibility import fault_in_counts
from fedopl.study.study import Study

# Thresholds are agreed from counts in this many bins.
N_FINE_BINS = 256
MOST_COUNTS = 2  # how often they are counted


@message
class BinCounts(Message, code=74):
    """Counts of training rows."""

    counts: Annotated[Array, (Axis.CUT_COLUMNS, Axis.FINE_BINS), Sum]


@message
class CountBins(Query[BinCounts], code=10, asked=Asked.TOTAL):
    """Ask how many training rows lie between these cuts, so that thresholds can be agreed."""

    title = "Rows between thresholds"
    content = "counts of rows, for each number"
    cuts: Annotated[Array, (Axis.CUT_COLUMNS, Axis.FINE_CUTS)]  # of each column, rising

    @classmethod
    def most(cls, _study: Study) -> int:
        """Twice: a second time if the first cuts were too coarse."""
        return MOST_COUNTS

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether thresholds on a grid are not agreed beforehand."""
        return study.policy.on_grid and bool(study.cut_columns)

    def fault_in(self, answer: BinCounts, _study: Study, n_rows: int) -> str | None:
        """Check that counts are whole, and of no more rows than there are."""
        return fault_in_counts(answer.counts, n_rows)
