"""The sums that exact linear policies are solved from."""

from dataclasses import replace
from typing import Annotated, Any, Self

import numpy as np

from fedopl.messages.combining import PerClient
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.plausibility import CORNER_TOLERANCE, bordered, fault_in_moments
from fedopl.study.study import Study


@message
class ScoreSums(Message, code=68):
    """Weighted means over rows: φφᵀ, φ·Γ̂(a) and Γ̂(a)², and the share of rows behind each.

    They are kept by client, so that the policy of any mixture can be solved for again.
    """

    grams: Annotated[Array, (Axis.GRAMS, Axis.FEATURES, Axis.FEATURES), PerClient]
    products: Annotated[Array, (Axis.ACTIONS, Axis.FEATURES), PerClient]
    squares: Annotated[Array, (Axis.ACTIONS,), PerClient]
    shares: Annotated[Array, (Axis.ACTIONS,), PerClient]

    def without_sums(self) -> Self:
        """The answer of a client that adds no sums of terms: zeros, and no share of rows."""
        names = ("grams", "products", "squares", "shares")
        return replace(self, **{name: np.zeros_like(getattr(self, name)) for name in names})

    @property
    def has_sums(self) -> bool:
        """Whether the client adds sums of terms."""
        return bool(self.shares.any())


def fault_in_score_sums(
    _query: Query[Any], answer: ScoreSums, study: Study, _n_rows: int, /
) -> str | None:
    """Check that sums are not scaled, which would gain weight; the mean of one reveals scaling."""
    n_grams = answer.grams.shape[-3]
    if n_grams not in (1, study.n_actions):
        return "the number of grams fits neither one for all actions nor one for each"
    if answer.shares.min() < 0 or answer.shares.max() > 1 + CORNER_TOLERANCE:
        return "a share of rows is outside 0 to 1"
    corners = answer.grams[..., -1, -1]
    present = answer.shares[..., :n_grams] > 0
    if (np.abs(corners[present] - 1) > CORNER_TOLERANCE).any():
        return "the mean of one is not one"
    if answer.squares.min() < 0:
        return "a square is negative"
    return fault_in_moments(bordered(answer.grams, answer.products, answer.squares))


@message
class SumScores(Query[ScoreSums], code=3, asked=Asked.EACH):
    """Ask to score rows with these outcome models, or with own ones if there are none, and sum."""

    title = "Sums of scores"
    content = "means of squares and products of features and scores"
    models: Annotated[Array, (Axis.MODELS, Axis.ACTIONS, Axis.TERMS)]
    supported: Annotated[Array, (Axis.MODELS, Axis.ACTIONS)]  # 0 where nobody took the action
    checks_stacks = True
    fault_in = fault_in_score_sums
