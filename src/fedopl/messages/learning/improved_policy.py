"""One round of local steps on a policy's parameters (Algorithm 2)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedopl.messages.combining import WeightedMean
from fedopl.messages.message import Array, Asked, Axis, Message, Query
from fedopl.study.study import Study


@dataclass(frozen=True, eq=False, kw_only=True)
class ImprovedPolicy(Message):
    """The parameters after the local steps."""

    code: ClassVar[int] = 70
    parameters: Annotated[Array, (Axis.ACTIONS, Axis.PARAMETERS), WeightedMean()]


@dataclass(frozen=True, eq=False, kw_only=True)
class ImprovePolicy(Query[ImprovedPolicy]):
    """Improve these parameters on your scores (Algorithm 2)."""

    code: ClassVar[int] = 6
    answer: ClassVar[type[Message]] = ImprovedPolicy
    asked: ClassVar[Asked] = Asked.EACH
    title: ClassVar[str] = "Steps on the policy"
    content: ClassVar[str] = "the policy's parameters after steps on own rows"
    round: int
    parameters: Annotated[Array, (Axis.ACTIONS, Axis.PARAMETERS)]
    centre: Annotated[Array, (Axis.PARAMETERS,)]
    scale: Annotated[Array, (Axis.PARAMETERS,)]

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Of the iterative oracles."""
        return study.policy.kind == "linear" and study.linear.oracle in ("csoaa-sgd", "csoaa-vw")

    @classmethod
    def most(cls, study: Study) -> int:
        """One for each round."""
        return study.linear.training.rounds
