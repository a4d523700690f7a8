"""The sums that the federation's outcome models are fitted from."""

from typing import Annotated

from fedopl.messages.combining import Sum
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.plausibility import fault_in_squares
from fedopl.study.study import Study


@message
class OutcomeSums(Message, code=66):
    """Σ w·z zᵀ with z = (x, 1, y), and Σ w², for each fold and action."""

    sums: Annotated[Array, (Axis.FOLDS, Axis.ACTIONS, Axis.REGRESSION, Axis.REGRESSION), Sum]
    squared_weights: Annotated[Array, (Axis.FOLDS, Axis.ACTIONS), Sum]


@message
class SumOutcomes(Query[OutcomeSums], code=2, asked=Asked.TOTAL):
    """The sums that outcome models are made from, apart for each fold and action."""

    title = "Sums for outcome models"
    content = "sums of squares and products, by fold and action"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Where outcome models are everybody's."""
        return study.nuisances.kind == "federated"

    def fault_in(self, answer: OutcomeSums, _study: Study, _n_rows: int) -> str | None:
        """Sums of squares are symmetric and not negative."""
        if answer.squared_weights.min() < 0:
            return "a sum of squared weights is negative"
        return fault_in_squares(answer.sums)
