"""Whether models fit: what richer ones would change, balance, and what rests on single rows."""

from typing import Annotated

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.combining import PerClient
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.study.study import Study

# Shares that rest on a single row are released as powers of two: a half, a quarter, and so on.
SMALLEST_SHARE = 2.0**-10
# What is told of an action, in this order.
TOLD_OF_FIT = (
    "released",  # 0 where the action's numbers rest on too few rows: then all are 0
    "moved",  # the value of giving it to everybody, by a richer outcome model
    "moved_variances",
    "explained",  # the share of what outcome models leave that the richer one explains
    "trim_released",
    "trimmed",  # the same value, by trimmed weights
    "trimmed_variances",
    "largest_weights",  # the share of all 1/propensity that one row has
    "largest_influences",  # how far one row moves the value, in standard errors
)


@message
class ModelFit(Message, code=82):
    """By action, on training rows, what is told of fit, and how takers differ from everybody.

    Imbalances are those of takers weighted by 1/propensity, in standard deviations; last comes how
    far their weights are from adding up.
    """

    numbers: Annotated[Array, (Axis.ACTIONS, Axis.FIT_NUMBERS), PerClient]
    imbalance: Annotated[Array, (Axis.ACTIONS, Axis.PARAMETERS), PerClient]
    imbalance_of_squares: Annotated[Array, (Axis.ACTIONS, Axis.PARAMETERS), PerClient]

    def of(self, name: str) -> FloatArray:  # (n_actions,)
        """One of `TOLD_OF_FIT`, for every action."""
        return np.asarray(self.numbers[:, TOLD_OF_FIT.index(name)])


@message
class TellFit(Query[ModelFit], code=19, asked=Asked.EACH):
    """Ask whether outcome models and propensities fit the rows that they were made from."""

    title = "Whether models fit"
    content = (
        "what richer models would change, balance, and what one row has at most, by powers of 2"
    )

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Where the study describes what it learned, and every client answers for itself."""
        return study.evaluation.describe and not study.aggregators

    def fault_in(self, answer: ModelFit, _study: Study, _n_rows: int) -> str | None:
        """Flags are flags, variances are not negative, and no row has more than all."""
        if not np.isin([answer.of("released"), answer.of("trim_released")], (0.0, 1.0)).all():
            return "tells a part of what is released"
        if min(answer.of("moved_variances").min(), answer.of("trimmed_variances").min()) < 0:
            return "a variance is negative"
        for shares in (answer.of("largest_weights"), answer.of("largest_influences")):
            if shares.min() < 0 or shares.max() > 1:
                return "a row has more than all, or less than nothing"
        if answer.of("explained").max() > 1:
            return "more is explained than there is"
        return None
