"""What the contexts of a target are like, and of sources' rows under weights, step by step.

A row weighs exp(ηᵀb(x)), where b has every feature z = (x − centre)/scale and its square. The
server looks for the η at which the means of b, over all sources, are the target's (Newton's
method). Each step takes one answer of every source.
"""

from typing import Annotated

import numpy as np

from fedopl.messages.combining import PerClient
from fedopl.messages.evaluation.policy_fields import valued_split
from fedopl.messages.evaluation.policy_values import most_rows
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.plausibility import CELL_TOLERANCE, CORNER_TOLERANCE, fault_in_moments
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


# Steps to which a source answers, and after which the server stops.
MOST_BALANCING_STEPS = 8


@message
class BalanceSums(Message, code=125):
    """Weighted means of b and of its products over valued rows, and the mean weight's logarithm.

    `released` is 0 if the weights would depend on too few rows: then all else is zero.
    """

    released: Annotated[int, PerClient]
    scored: Annotated[int, PerClient]  # 0 if rows lack the score of an action
    n_rows: Annotated[int, PerClient]
    log_weight: Annotated[float, PerClient]
    means: Annotated[Array, (Axis.BALANCED,), PerClient]
    products: Annotated[Array, (Axis.BALANCED, Axis.BALANCED), PerClient]


@message
class BalanceContexts(Query[BalanceSums], code=60, asked=Asked.EACH):
    """Ask sources what their contexts are like under weights exp(ηᵀb(x))."""

    title = "How sources' rows together come to look like the target's"
    content = "means and products of features and of their squares, under weights"
    centres: Annotated[Array, (Axis.PARAMETERS,)]
    scales: Annotated[Array, (Axis.PARAMETERS,)]
    slopes: Annotated[Array, (Axis.BALANCED,)]  # η

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether weights may be found for all sources' rows together."""
        return study.target is not None and study.target.may_balance_jointly

    @classmethod
    def most(cls, _study: Study) -> int:
        """As many steps as the server takes."""
        return MOST_BALANCING_STEPS

    def is_plausible(self, study: Study) -> bool:
        """Check for scales above zero."""
        return bool((self.scales > 0).all()) and super().is_plausible(study)

    def fault_in(self, answer: BalanceSums, study: Study, n_rows: int) -> str | None:
        """Check the number of rows, and that products fit the means."""
        if answer.released not in (0, 1) or answer.scored not in (0, 1):
            return "tells a part of its sums"
        if answer.n_rows < 1 or answer.n_rows > most_rows(study, valued_split(study), n_rows):
            return f"sums of {answer.n_rows:,} rows, of which it has fewer"
        if not answer.released:
            return "sums that were not released" if answer.means.any() else None
        # The logarithm F of the mean weight is convex in η, and 0 at 0: so F(η) ≤ ηᵀ∇F(η).
        most = float(self.slopes @ answer.means)
        if answer.log_weight > most + CELL_TOLERANCE * (1 + abs(most)):
            return "weighs more than its means allow"
        return fault_in_moments(with_one(answer.means, answer.products))


def with_one(means: Array, products: Array) -> Array:  # (n + 1, n + 1)
    """Means of products of terms and of a one."""
    corner = np.block([[products, means[:, None]], [means[None, :], np.ones((1, 1))]])
    return np.asarray(corner)
