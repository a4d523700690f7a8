"""What a linear policy gains and spends at each of many prices, on held-out rows."""

from typing import Annotated

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.combining import PerClient
from fedopl.messages.evaluation.policy_values import NOISY_ROWS, EstimateValues, most_rows
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
from fedopl.messages.plausibility import EIGENVALUE_TOLERANCE, fault_in_moments
from fedopl.study.study import Study

N_PRICES = 64
# The lowest price above zero, of the highest.
LOWEST_PRICE = 1e-3


def price_grid(top: float) -> FloatArray:  # (N_PRICES,)
    """Zero, and prices up to this one, each a little more than the one before in proportion."""
    return np.concatenate([[0.0], top * np.geomspace(LOWEST_PRICE, 1.0, N_PRICES - 1)])


def n_points(study: Study) -> int:
    """What is told of: the policy at every price, then everybody getting each of the actions."""
    return N_PRICES + study.n_actions


@message
class PriceCurve(Message, code=109):
    """Means of what is gained over one action for all and of what is spent, and their covariances.

    At every price, then for every action given to everybody.
    """

    n_rows: Annotated[int, PerClient]  # that have scores for what is decided
    of_rows: Annotated[int, PerClient]  # that are held out
    degrees_of_freedom: Annotated[int, PerClient]
    means: Annotated[Array, (Axis.CURVE_POINTS, Axis.TWO), PerClient]
    covariances: Annotated[Array, (Axis.CURVE_POINTS, Axis.TWO, Axis.TWO), PerClient]


@message
class ValuePrices(
    Query[PriceCurve],
    code=44,
    asked=Asked.EACH,
    budget="value_queries",
    lifetime="value_policies",
    permission="values",
):
    """Ask what this policy gains over one action for all, and spends, at prices on a public grid.

    At a price μ it decides by argmax_a θ_aᵀφ(x) − μ·c_a(x), with the study's costs c.
    """

    title = "What a policy gains and spends at prices"
    content = "means of gains and of costs at 64 prices, and how precise they are"

    top: float  # the highest price
    against: int  # the action that gains are over
    parameters: Annotated[Array, (Axis.ACTIONS, Axis.TERMS)]

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Where there is a budget."""
        return study.budget is not None

    @classmethod
    def most(cls, _study: Study) -> int:
        """One: two paths of policies could differ in a row."""
        return 1

    @property
    def amount(self) -> int:
        """A policy for each price, and for each action."""
        return N_PRICES + len(self.parameters)

    @classmethod
    def most_amount(cls, study: Study) -> float:
        """One path, beside all policies that are valued otherwise: noise is for all of them."""
        return n_points(study) + EstimateValues.most_amount(study)

    def arrays(self) -> list[FloatArray]:
        """None: whatever a policy's numbers are, they come to actions and no more."""
        return []

    def is_plausible(self, study: Study) -> bool:
        """A price, and an action that there is."""
        return 0 < self.top <= LARGEST_ASKED and 0 <= self.against < study.n_actions

    def fault_in(self, answer: PriceCurve, study: Study, n_rows: int) -> str | None:
        """A path of all prices, on rows that are there."""
        if len(answer.means) != n_points(study) or len(answer.covariances) != n_points(study):
            return f"told of {len(answer.means)} prices and actions of {n_points(study)}"
        if not 0 < answer.n_rows <= answer.of_rows <= most_rows(study, RowSplit.EVALUATION, n_rows):
            return f"values of {answer.n_rows:,} of {answer.of_rows:,} rows, of which it has fewer"
        if not 0 <= answer.degrees_of_freedom < answer.n_rows:
            return "more degrees of freedom than rows"
        tolerance = EIGENVALUE_TOLERANCE + NOISY_ROWS / answer.n_rows
        return fault_in_moments(answer.covariances, tolerance)
