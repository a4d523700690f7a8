"""What policies gain and spend: one at each of many prices, trees along a path, or candidates."""

from dataclasses import field
from typing import Annotated

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.combining import PerClient
from fedopl.messages.evaluation.policy_fields import AsksByFold
from fedopl.messages.evaluation.policy_values import most_rows
from fedopl.messages.message import (
    LARGEST_ASKED,
    Array,
    Asked,
    Axis,
    Message,
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

    Of every policy, at every price; then of every action given to everybody, then of what was done.
    """

    n_rows: Annotated[int, PerClient]  # that have scores for what is decided
    of_rows: Annotated[int, PerClient]  # that are held out, or all
    degrees_of_freedom: Annotated[int, PerClient]
    means: Annotated[Array, (Axis.CURVE_POINTS, Axis.TWO), PerClient]
    covariances: Annotated[Array, (Axis.CURVE_POINTS, Axis.TWO, Axis.TWO), PerClient]


@message
class ValueSpending(
    AsksByFold[PriceCurve],
    code=143,
    asked=Asked.EACH,
    permission="values",
):
    """Ask what these policies gain over one action for all, and spend.

    At a price μ, a linear policy decides by argmax_a θ_aᵀφ(x) − μ·c_a(x), with the study's costs c.
    """

    title = "What policies gain and spend"
    content = "means of gains and of costs, and how precise they are"

    against: int  # the action that gains are over
    # Rising from zero; empty for policies that have no price in them.
    prices: Annotated[Array, (Axis.PRICES,)] = field(default_factory=lambda: np.empty(0))

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Where a policy that can meet a budget has one."""
        policy = study.policy
        can_meet = policy.kind == "linear" or policy.on_grid or policy.compares_candidates
        return study.budget is not None and can_meet

    @property
    def split(self) -> RowSplit:
        """The rows that it is about."""
        return RowSplit.EACH_FOLD if self.is_by_fold else RowSplit.EVALUATION

    def arrays(self) -> list[FloatArray]:
        """None: prices and versions are looked at apart."""
        return []

    def is_plausible(self, study: Study) -> bool:
        """As many policies or prices as the study has, and an action that there is."""
        if self.is_by_fold != study.evaluation.is_cross_fitted or not self.versions_fit(study):
            return False
        n_told = self.n_asked * max(1, len(self.prices)) + study.n_actions + 1
        if n_told != n_points(study) or not 0 <= self.against < study.n_actions:
            return False
        return not len(self.prices) or self._rise(study)

    def _rise(self, study: Study) -> bool:
        """Whether there is one linear policy, at prices that rise from zero."""
        rise = self.prices[0] == 0 and bool((np.diff(self.prices) > 0).all())
        return rise and self.prices[-1] <= LARGEST_ASKED and study.policy.kind == "linear"

    def fault_in(self, answer: PriceCurve, study: Study, n_rows: int) -> str | None:
        """What cannot be true of a path of policies and of every action for everybody."""
        if len(answer.means) != n_points(study) or len(answer.covariances) != n_points(study):
            return f"told of {len(answer.means)} policies and actions of {n_points(study)}"
        if not 0 < answer.n_rows <= answer.of_rows <= most_rows(study, self.split, n_rows):
            return f"values of {answer.n_rows:,} of {answer.of_rows:,} rows, of which it has fewer"
        if not 0 <= answer.degrees_of_freedom < answer.n_rows:
            return "more degrees of freedom than rows"
        return fault_in_moments(answer.covariances)
