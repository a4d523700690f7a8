"""One round of local steps on a policy's parameters (Algorithm 2)."""

from typing import Annotated

from fedopl.messages.combining import WeightedMean
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.study.study import Study


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
    def needed(cls, study: Study) -> bool:
        """Whether the study uses an iterative oracle."""
        return study.linear.oracle in ("csoaa-sgd", "csoaa-vw")

    @classmethod
    def most(cls, study: Study) -> int:
        """One for each round."""
        return study.linear.training.rounds

    def step(self, answer: ImprovedPolicy) -> Array:
        """The change of parameters in the round."""
        return answer.parameters - self.parameters
