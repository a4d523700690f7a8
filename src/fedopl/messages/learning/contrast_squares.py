"""The spread of scores within a row, which gives the likelihood of personal policies."""

from typing import Annotated

from fedopl.messages.combining import PerClient
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.study.study import Study


@message
class ContrastSquares(Message, code=144):
    """The mean over rows of Σ_a (Γ̂(a) − mean of Γ̂)², over actions that every row has scores for."""

    squares: Annotated[Array, (Axis.VERSIONS,), PerClient]


@message
class SumContrasts(Query[ContrastSquares], code=50, asked=Asked.EACH):
    """The mean of squared scores less the row's mean score, over training rows."""

    title = "How far scores of a row lie apart"
    content = "a mean of squares of scores"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether clients have personal policies and sums do not show how far they differ."""
        return study.personalises and not study.policy.compares_candidates

    def fault_in(self, answer: ContrastSquares, _study: Study, _n_rows: int, /) -> str | None:
        """Check that the mean of squares is not negative."""
        return "a mean of squares is negative" if answer.squares.min() < 0 else None
