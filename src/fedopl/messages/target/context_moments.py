"""Means and mean squares of the contexts at a site without outcomes."""

from typing import Annotated

import numpy as np

from fedopl.messages.combining import PerClient
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.plausibility import CORNER_TOLERANCE
from fedopl.study.study import Study


@message
class ContextMoments(Message, code=120):
    """Weighted means over all rows of (x, 1) and of its squares."""

    n_rows: Annotated[int, PerClient]
    means: Annotated[Array, (Axis.PARAMETERS,), PerClient]
    squares: Annotated[Array, (Axis.PARAMETERS,), PerClient]


@message
class TellContexts(Query[ContextMoments], code=54, asked=Asked.EACH):
    """Ask the target for means of its contexts; no other client answers."""

    title = "What the target's contexts are like"
    content = "means of the features and of their squares"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether the study has a target."""
        return study.target is not None

    def fault_in(self, answer: ContextMoments, _study: Study, _n_rows: int) -> str | None:
        """Check that means of one are one, and mean squares at least the squared means."""
        if answer.n_rows < 1:
            return "has no rows"
        corners = np.array([answer.means[-1], answer.squares[-1]])
        if (np.abs(corners - 1) > CORNER_TOLERANCE).any():
            return "the mean of one is not one"
        return fault_in_squares_of_means(answer.means, answer.squares)


def fault_in_squares_of_means(means: Array, squares: Array) -> str | None:
    """What cannot be true of means and mean squares of the same rows."""
    if (squares < means**2 * (1 - CORNER_TOLERANCE)).any():
        return "a mean of squares is below the square of the mean"
    return None
