"""Counts of rows between fine cuts, from which a tree's thresholds are agreed."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedopl.messages.combining import Sum
from fedopl.messages.message import Array, Asked, Axis, Message, Query
from fedopl.messages.plausibility import fault_in_counts
from fedopl.study.study import Study

# Thresholds are agreed from counts in this many bins.
N_FINE_BINS = 256


@dataclass(frozen=True, eq=False, kw_only=True)
class BinCounts(Message):
    """Rounded counts of training rows."""

    code: ClassVar[int] = 74
    counts: Annotated[Array, (Axis.CUT_COLUMNS, Axis.FINE_BINS), Sum()]


@dataclass(frozen=True, eq=False, kw_only=True)
class CountBins(Query[BinCounts]):
    """Ask how many training rows lie between these cuts, so that thresholds can be agreed."""

    code: ClassVar[int] = 10
    answer: ClassVar[type[Message]] = BinCounts
    asked: ClassVar[Asked] = Asked.TOTAL
    title: ClassVar[str] = "Rows between thresholds"
    content: ClassVar[str] = "rounded counts of rows, for each number"
    budget: ClassVar[str | None] = "count_queries"
    cuts: Annotated[Array, (Axis.CUT_COLUMNS, Axis.FINE_CUTS)]  # of each column, rising

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Where thresholds on a grid are not agreed beforehand."""
        on_grid = study.policy.kind == "tree" and study.tree.thresholds == "grid"
        return on_grid and bool(study.cut_columns)

    def fault_in(self, answer: BinCounts, _study: Study, n_rows: int) -> str | None:
        """Counts are whole, and of no more rows than there are."""
        return fault_in_counts(answer.counts, n_rows)
