"""Messages that a policy is learned with: enrolment, sums, and steps of iterative oracles."""

from typing import Annotated

import numpy as np

from fedopl.messages.combining import PerClient, Sum, WeightedMean
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.plausibility import CORNER_TOLERANCE, fault_in_squares
from fedopl.study.study import Study


@message
class Enrolment(Message, code=65):
    """Yes, with this many rows to learn from."""

    n_rows: Annotated[int, PerClient]
    rows_per_action: Annotated[Array, (Axis.ACTIONS,), PerClient]


@message
class Enrol(Query[Enrolment], code=1, asked=Asked.EACH):
    """Ask whether a client takes part, and with how many rows."""

    title = "Who takes part"
    content = "how many rows there are, and how many took each action"

    def fault_in(self, answer: Enrolment, _study: Study, _n_rows: int) -> str | None:
        """Who takes part has rows."""
        return None if answer.n_rows > 0 else "enrolled without a row"


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

    def fault_in(self, answer: OutcomeSums, _study: Study, _n_rows: int) -> str | None:
        """Sums of squares are symmetric and not negative."""
        if answer.squared_weights.min() < 0:
            return "a sum of squared weights is negative"
        return fault_in_squares(answer.sums)


@message
class ScoreSums(Message, code=68):
    """Weighted means over rows: φφᵀ, φ·Γ̂(a) and Γ̂(a)², and the share each rests on.

    They stay apart by client: a run keeps them, so that any mixture can be solved for again.
    """

    grams: Annotated[Array, (Axis.GRAMS, Axis.FEATURES, Axis.FEATURES), PerClient]
    products: Annotated[Array, (Axis.ACTIONS, Axis.FEATURES), PerClient]
    squares: Annotated[Array, (Axis.ACTIONS,), PerClient]
    shares: Annotated[Array, (Axis.ACTIONS,), PerClient]


def _fault_in_score_sums(
    _query: Query[ScoreSums], answer: ScoreSums, study: Study, _n_rows: int, /
) -> str | None:
    """Sums that were scaled would buy weight; the mean of one gives them away."""
    if len(answer.grams) not in (1, study.n_actions):
        return "the number of grams fits neither one for all actions nor one for each"
    if answer.shares.min() < 0 or answer.shares.max() > 1 + CORNER_TOLERANCE:
        return "a share of rows is outside 0 to 1"
    corners = answer.grams[:, -1, -1]
    present = answer.shares[: len(corners)] > 0
    if (np.abs(corners[present] - 1) > CORNER_TOLERANCE).any():
        return "the mean of one is not one"
    return fault_in_squares(answer.grams)


@message
class SumScores(Query[ScoreSums], code=3, asked=Asked.EACH, budget="score_queries"):
    """Score your rows with these outcome models, or with your own if there are none, and sum up."""

    title = "Sums of scores"
    content = "means of squares and products of features and scores"
    models: Annotated[Array, (Axis.MODELS, Axis.ACTIONS, Axis.PARAMETERS)]
    supported: Annotated[Array, (Axis.MODELS, Axis.ACTIONS)]  # 0 where nobody took the action
    fault_in = _fault_in_score_sums


@message
class SumFitting(Query[ScoreSums], code=17, asked=Asked.EACH, budget="score_queries"):
    """The sums of the scores that are there, over training rows without the first fold.

    What they are for can then be tried on the first fold.
    """

    title = "Sums to fit with"
    content = "the same means, over training rows but the first fold"
    fault_in = _fault_in_score_sums


@message
class PairSums(Message, code=69):
    """Means of w·xxᵀ and w·x·s, with s the better of two actions and w what it is better by."""

    grams: Annotated[Array, (Axis.PAIRS, Axis.PARAMETERS, Axis.PARAMETERS), WeightedMean]
    products: Annotated[Array, (Axis.PAIRS, Axis.PARAMETERS), WeightedMean]


@message
class SumPairs(Query[PairSums], code=5, asked=Asked.TOTAL):
    """The same for every pair of actions, rows weighted by what the choice is worth."""

    title = "Sums for pairs of actions"
    content = "the same means, for each pair of actions"

    def fault_in(self, answer: PairSums, _study: Study, _n_rows: int) -> str | None:
        """Weighted sums of squares are symmetric and not negative."""
        return fault_in_squares(answer.grams)


@message
class ImprovedPolicy(Message, code=70):
    """The parameters after the local steps."""

    parameters: Annotated[Array, (Axis.ACTIONS, Axis.PARAMETERS), WeightedMean]


@message
class ImprovePolicy(Query[ImprovedPolicy], code=6, asked=Asked.EACH):
    """Improve these parameters on your scores (Algorithm 2)."""

    title = "Steps on the policy"
    content = "the policy's parameters after steps on own rows"
    round: int
    parameters: Annotated[Array, (Axis.ACTIONS, Axis.PARAMETERS)]
    centre: Annotated[Array, (Axis.PARAMETERS,)]
    scale: Annotated[Array, (Axis.PARAMETERS,)]

    @classmethod
    def most(cls, study: Study) -> int:
        """One for each round."""
        return study.linear.training.rounds


@message
class Slope(Message, code=71):
    """The gradient of the softened policy's value."""

    gradient: Annotated[Array, (Axis.ACTIONS, Axis.PARAMETERS), WeightedMean]


@message
class SlopeOfValue(Query[Slope], code=7, asked=Asked.TOTAL, budget="slope_queries"):
    """Ask which way the value of the softened policy rises."""

    title = "Which way is better"
    content = "the slope of the value, by parameter"
    temperature: float
    parameters: Annotated[Array, (Axis.ACTIONS, Axis.PARAMETERS)]
