"""Whether models fit: what richer ones would change, balance, and what rests on single rows."""

from typing import Annotated

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.combining import PerClient
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.study.study import Study

# What is told of an action, in this order.
FIT_NUMBERS = (
    "effective_rows",  # behind its numbers; 0 where those are too few: then all are 0
    "moved",  # the change of the value of giving it to everybody, by a richer outcome model
    "moved_variances",
    "explained",  # the share of residuals that the richer one explains, out of fold
    "trimmed",  # the change of the value if no propensity is smaller than a public one
    "trimmed_variances",
    "largest_weights",  # the share of all 1/propensity that one row has
    "largest_influences",  # the change of the value without one row, in standard errors
)


@message
class ModelFit(Message, code=131):
    """By action, on training rows, what is told of fit, and how takers differ from everybody.

    Imbalances are those of takers weighted by 1/propensity, in standard deviations; last comes how
    far their weights are from adding up.
    """

    numbers: Annotated[Array, (Axis.ACTIONS, Axis.FIT_NUMBERS), PerClient]
    imbalance: Annotated[Array, (Axis.ACTIONS, Axis.PARAMETERS), PerClient]
    imbalance_of_squares: Annotated[Array, (Axis.ACTIONS, Axis.PARAMETERS), PerClient]

    def of(self, name: str) -> FloatArray:  # (n_actions,)
        """One of `FIT_NUMBERS`, for every action."""
        return np.asarray(self.numbers[:, FIT_NUMBERS.index(name)])


@message
class TellFit(Query[ModelFit], code=19, asked=Asked.EACH):
    """Ask whether outcome models and propensities fit the rows that they were made from."""

    title = "Whether models fit"
    content = "what richer models would change, balance, and the most that one row has"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Where the study describes what it learned, and every client answers for itself."""
        return study.evaluation.describe and not study.aggregators

    def fault_in(self, answer: ModelFit, _study: Study, _n_rows: int) -> str | None:
        """Check that variances are not negative, and that no row has more than all."""
        names = ("effective_rows", "moved_variances", "trimmed_variances")
        if min(answer.of(name).min() for name in names) < 0:
            return "a variance is negative"
        for shares in (answer.of("largest_weights"), answer.of("largest_influences")):
            if shares.min() < 0 or shares.max() > 1:
                return "a row has more than all, or less than nothing"
        if answer.of("explained").max() > 1:
            return "more is explained than there is"
        return None
