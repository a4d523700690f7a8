"""The gradient of a softened policy's value, which the oracle "direct" follows."""

from typing import Annotated

from fedopl.base.arrays import largest_size
from fedopl.messages.combining import WeightedMean
from fedopl.messages.message import LARGEST_ASKED, Array, Asked, Axis, Message, Query, message
from fedopl.policies.linear import NEVER
from fedopl.study.study import Study

MOST_SLOPES = 15  # at each temperature of `solvers/averaged_rounds.py`, a few


@message
class Slope(Message, code=71):
    """The gradient of the softened policy's value."""

    gradient: Annotated[Array, (Axis.ACTIONS, Axis.PARAMETERS), WeightedMean]


@message
class SlopeOfValue(Query[Slope], code=7, asked=Asked.TOTAL):
    """Ask for the gradient of the softened policy's value."""

    title = "Which way is better"
    content = "the slope of the value, by parameter"
    temperature: float
    parameters: Annotated[Array, (Axis.ACTIONS, Axis.PARAMETERS)]

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether the study uses the oracle "direct"."""
        return study.linear.oracle == "direct"

    @classmethod
    def most(cls, _study: Study) -> int:
        """One for each step of the climb."""
        return MOST_SLOPES

    def step(self, answer: Slope) -> Array:
        """The step that this client alone would take."""
        return answer.gradient

    def is_plausible(self, _study: Study) -> bool:
        """Check that logits cannot overflow; an action without any score is never taken."""
        taken = self.parameters[self.parameters[:, -1] != NEVER]
        return (
            largest_size(taken) <= LARGEST_ASKED
            and 1 / LARGEST_ASKED <= self.temperature <= LARGEST_ASKED
        )
