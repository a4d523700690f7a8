"""What a linear policy gains and spends at each of many prices, on held-out rows."""

from typing import Annotated

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.combining import PerClient
from fedopl.messages.evaluation.policy_values import most_rows
from fedopl.messages.message import (
    LARGEST_ASKED,
    Array,
    Asked,
    Axis,
    Message,
    Query,
    RowSplit,
    message,
)
from fedopl.messages.plausibility import fault_in_moments
from fedopl.study.study import Study

N_PRICES = 64
# Trees along a path of prices: a few questions have few answers, so few trees are any different.
N_TREES = 16


def n_points(study: Study) -> int:
    """What is told of: policies at prices, everybody getting each of the actions, what was done."""
    if study.policy.compares_candidates:
        return len(study.candidates) + study.n_actions + 1
    return (N_TREES if study.policy.on_grid else N_PRICES) + study.n_actions + 1


@message
class PriceCurve(Message, code=109):
    """Means of what is gained over one action for all and of what is spent, and their covariances.

    At every price, then for every action given to everybody, then of what was done.
    """

    n_rows: Annotated[int, PerClient]  # that have scores for what is decided
    of_rows: Annotated[int, PerClient]  # that are held out
    degrees_of_freedom: Annotated[int, PerClient]
    means: Annotated[Array, (Axis.CURVE_POINTS, Axis.TWO), PerClient]
    covariances: Annotated[Array, (Axis.CURVE_POINTS, Axis.TWO, Axis.TWO), PerClient]


@message
class AsksForCurve(Query[PriceCurve]):
    """What queries about gains and spending share."""

    def fault_in(self, answer: PriceCurve, study: Study, n_rows: int) -> str | None:
        """What cannot be true of a path of policies and of every action for everybody."""
        if len(answer.means) != n_points(study) or len(answer.covariances) != n_points(study):
            return f"told of {len(answer.means)} policies and actions of {n_points(study)}"
        if not 0 < answer.n_rows <= answer.of_rows <= most_rows(study, RowSplit.EVALUATION, n_rows):
            return f"values of {answer.n_rows:,} of {answer.of_rows:,} rows, of which it has fewer"
        if not 0 <= answer.degrees_of_freedom < answer.n_rows:
            return "more degrees of freedom than rows"
        return fault_in_moments(answer.covariances)


@message
class ValuePrices(
    AsksForCurve,
    code=44,
    asked=Asked.EACH,
    permission="values",
):
    """Ask what this policy gains over one action for all, and spends, at each of these prices.

    At a price μ it decides by argmax_a θ_aᵀφ(x) − μ·c_a(x), with the study's costs c.
    """

    title = "What a policy gains and spends at prices"
    content = "means of gains and of costs at 64 prices, and how precise they are"

    prices: Annotated[Array, (Axis.PRICES,)]  # rising from zero
    against: int  # the action that gains are over
    parameters: Annotated[Array, (Axis.ACTIONS, Axis.TERMS)]

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Where a linear policy has a budget."""
        return study.budget is not None and study.policy.kind == "linear"

    def arrays(self) -> list[FloatArray]:
        """None: whatever a policy's numbers are, they come to actions and no more."""
        return []

    def is_plausible(self, study: Study) -> bool:
        """Prices that rise from zero, and an action that there is."""
        rise = self.prices[0] == 0 and bool((np.diff(self.prices) > 0).all())
        are_prices = rise and self.prices[-1] <= LARGEST_ASKED
        return are_prices and 0 <= self.against < study.n_actions
