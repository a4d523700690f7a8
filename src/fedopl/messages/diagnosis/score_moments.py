"""How large scores are: what regret bounds call the variance of policies' values."""

from typing import Annotated

from fedopl.messages.combining import PerClient
from fedopl.messages.diagnosis.compared_models import AsksIfJoiningPays
from fedopl.messages.message import Array, Asked, Axis, Message, message
from fedopl.messages.plausibility import CELL_TOLERANCE
from fedopl.study.study import Study


@message
class ScoreMoments(Message, code=132):
    """Means of squared scores over training rows: of the largest in each row, and by action.

    The first of each is of max_a Γ̂(a)² over the scores a row has, the others of Γ̂(a)² over the
    rows that have it. Means of too few rows are zero.
    """

    rows: Annotated[Array, (Axis.MOMENTS,), PerClient]  # 0 where left out
    degrees_of_freedom: Annotated[Array, (Axis.MOMENTS,), PerClient]
    means: Annotated[Array, (Axis.MOMENTS,), PerClient]
    variances: Annotated[Array, (Axis.MOMENTS,), PerClient]  # of the means


@message
class TellMoments(AsksIfJoiningPays[ScoreMoments], code=16, asked=Asked.EACH):
    """Ask how large scores are: what regret bounds call the variance of policies' values."""

    title = "How large scores are"
    content = "means of squared scores, and how precise they are"

    def fault_in(self, answer: ScoreMoments, _study: Study, _n_rows: int) -> str | None:
        """Check means of squares; the largest square of a row is at least each action's."""
        counted = (answer.rows, answer.degrees_of_freedom)
        if any((part < 0).any() or (part % 1).any() for part in counted):
            return "a number of rows is not a whole number"
        if (answer.means < 0).any() or (answer.variances < 0).any():
            return "a mean of squares or a variance is negative"
        over_all = (answer.rows > 0) & (answer.rows == answer.rows[0])
        largest = answer.means[0] * (1 + CELL_TOLERANCE)
        if (answer.means[over_all] > largest).any():
            return "an action's squares are larger than the largest"
        return None
