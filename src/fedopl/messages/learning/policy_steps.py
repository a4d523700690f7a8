"""Steps on a policy: local ones on linear parameters or a network (Algorithm 2), or a gradient."""

from typing import Annotated

from fedopl.base.arrays import largest_size
from fedopl.messages.combining import PerClient, WeightedMean
from fedopl.messages.message import LARGEST_ASKED, Array, Asked, Axis, Message, Query, message
from fedopl.policies.linear import NEVER
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


# No number of an honest network is larger, so steps cannot lead beyond a cap.
LARGEST_WEIGHT = 1e6


@message
class TrainedNetwork(Message, code=94):
    """The network's numbers after the steps of a round; its loss, before them, on other rows.

    The loss is relative to that of the linear part alone, so it is below zero if the network helps.
    """

    network: Annotated[Array, (Axis.NETWORK_NUMBERS,), WeightedMean]
    loss: Annotated[float, WeightedMean]
    loss_variance: Annotated[float, PerClient]  # of this mean


@message
class TrainNetwork(Query[TrainedNetwork], code=30, asked=Asked.EACH):
    """Ask for the steps of one round from this network, on residual scores of the linear part."""

    title = "Steps on the network"
    content = "the network's numbers after steps on own rows, and its loss on others"
    round: int
    network: Annotated[Array, (Axis.NETWORK_NUMBERS,)]
    linear: Annotated[Array, (Axis.ACTIONS, Axis.TERMS)]
    centre: Annotated[Array, (Axis.PARAMETERS,)]
    scale: Annotated[Array, (Axis.PARAMETERS,)]
    spread: float

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether the policy is neural."""
        return bool(study.hidden)

    @classmethod
    def most(cls, study: Study) -> int:
        """One for each round."""
        return study.neural.rounds

    def is_plausible(self, study: Study) -> bool:
        """Check that nothing can overflow; an action without any score is never taken."""
        taken = self.linear[self.linear[:, -1] != NEVER]
        rest = (self.centre, self.scale, taken)
        return (
            0 <= self.round < study.neural.rounds
            and largest_size(self.network) <= LARGEST_WEIGHT
            and all(largest_size(array) <= LARGEST_ASKED for array in rest)
            and bool((self.scale >= 1 / LARGEST_ASKED).all())
            and 1 / LARGEST_ASKED <= self.spread <= LARGEST_ASKED
        )

    def fault_in(self, answer: TrainedNetwork, _study: Study, _n_rows: int) -> str | None:
        """Check that the variance is not negative, and that the network may be sent to clients."""
        if answer.loss_variance < 0:
            return "the variance of its loss is negative"
        if largest_size(answer.network) > LARGEST_WEIGHT:
            return f"a number of its network is beyond {LARGEST_WEIGHT:g}"
        return None

    def step(self, answer: TrainedNetwork) -> Array:
        """The change of the network's numbers in the round."""
        return answer.network - self.network
