"""The sums for weighted all pairs: one least-squares problem for every pair of actions."""

from typing import Annotated

from fedopl.messages.combining import WeightedMean
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.plausibility import bordered, fault_in_moments
from fedopl.study.study import Study


@message
class PairSums(Message, code=69):
    """Means of w·xxᵀ and w·x·s, with s the better of two actions and w its advantage."""

    grams: Annotated[Array, (Axis.PAIRS, Axis.PARAMETERS, Axis.PARAMETERS), WeightedMean]
    products: Annotated[Array, (Axis.PAIRS, Axis.PARAMETERS), WeightedMean]


@message
class SumPairs(Query[PairSums], code=5, asked=Asked.TOTAL):
    """Ask for such sums for every pair of actions, with rows weighted by the advantage."""

    title = "Sums for pairs of actions"
    content = "the same means, for each pair of actions"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether the study uses the oracle "wap"."""
        return study.linear.oracle == "wap"

    def fault_in(self, answer: PairSums, _study: Study, _n_rows: int) -> str | None:
        """Check that, as s² = 1, the mean of w·s² is that of w, the last number of a gram."""
        weights = answer.grams[:, -1, -1]
        return fault_in_moments(bordered(answer.grams, answer.products, weights))
