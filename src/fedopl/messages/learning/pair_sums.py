"""The sums for weighted all pairs: one least-squares problem for every pair of actions."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedopl.messages.combining import WeightedMean
from fedopl.messages.message import Array, Asked, Axis, Message, Query
from fedopl.messages.plausibility import fault_in_squares
from fedopl.study.study import Study


@dataclass(frozen=True, eq=False, kw_only=True)
class PairSums(Message):
    """Means of w·xxᵀ and w·x·s, with s the better of two actions and w what it is better by."""

    code: ClassVar[int] = 69
    grams: Annotated[Array, (Axis.PAIRS, Axis.PARAMETERS, Axis.PARAMETERS), WeightedMean()]
    products: Annotated[Array, (Axis.PAIRS, Axis.PARAMETERS), WeightedMean()]


@dataclass(frozen=True, eq=False, kw_only=True)
class SumPairs(Query[PairSums]):
    """The same for every pair of actions, rows weighted by what the choice is worth."""

    code: ClassVar[int] = 5
    answer: ClassVar[type[Message]] = PairSums
    asked: ClassVar[Asked] = Asked.TOTAL
    title: ClassVar[str] = "Sums for pairs of actions"
    content: ClassVar[str] = "the same means, for each pair of actions"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Of the oracle "wap"."""
        return study.policy.kind == "linear" and study.linear.oracle == "wap"

    def fault_in(self, answer: PairSums, _study: Study, _n_rows: int) -> str | None:
        """Weighted sums of squares are symmetric and not negative."""
        return fault_in_squares(answer.grams)
