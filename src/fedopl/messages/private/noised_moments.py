"""The means and spreads of numbers within their ranges, asked before anything else."""

from typing import Annotated

import numpy as np

from fedopl.messages.combining import PerClient, Sum
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.sensitivity import UNMOVED, Moves
from fedopl.study.private.privacy_plan import Range
from fedopl.study.private.private_setting import PrivateSetting, with_ranges
from fedopl.study.study import Study


def _moments_move(study: Study) -> float:
    return PrivateSetting(study).moments_move


@message
class NoisedMoments(Message, code=116):
    """Over training rows, Σ z and Σ z² − 2 of each number in units of its range, with noise."""

    sums: Annotated[Array, (Axis.NUMBERS,), Moves(_moments_move, "means"), Sum]
    squares: Annotated[Array, (Axis.NUMBERS,), Moves(_moments_move, "spreads"), Sum]


@message
class MeasureNumbers(Query[NoisedMoments], code=52, asked=Asked.EACH):
    """Ask to sum up numbers and their squares, and add noise."""

    title = "Where numbers lie, with noise"
    content = "sums of numbers and of their squares, within declared ranges"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether ranges are to be measured."""
        return study.privacy is not None and not study.privacy.is_measured

    def shapes(self, study: Study) -> dict[str, tuple[int, ...]]:
        """Two sums for each number."""
        n_numbers = len(PrivateSetting(study).plan.measured)
        return {"sums": (n_numbers,), "squares": (n_numbers,)}


@message
class RangesTaken(Message, code=117):
    """How many numbers have measured ranges."""

    n_ranges: Annotated[int, UNMOVED, PerClient]


@message
class TakeRanges(Query[RangesTaken], code=53, asked=Asked.EACH):
    """Ask to continue with the study that has these ranges, whose hash the query carries.

    A client continues with the first such study and no other.
    """

    title = "Ranges that were measured"
    content = "how many ranges there are"
    ranges: Annotated[Array, (Axis.NUMBERS, Axis.TWO)]  # in the order of names

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether ranges were measured."""
        return study.privacy is not None and study.privacy.declared_ranges is not None

    @classmethod
    def of(cls, study: Study) -> "TakeRanges":
        """The query that makes clients continue with this study."""
        plan = PrivateSetting(study).plan
        return cls(ranges=np.array([plan.ranges[name] for name in plan.measured]))

    def named(self, study: Study) -> dict[str, Range]:
        """The ranges by name."""
        names = PrivateSetting(study).plan.measured
        ends = [(float(low), float(high)) for low, high in self.ranges]
        return dict(zip(names, ends, strict=True))

    def study_after(self, study: Study) -> Study | None:
        """The study that continues this one; None if it can have no such ranges."""
        try:
            return with_ranges(study, self.named(study))
        except ValueError:
            return None
