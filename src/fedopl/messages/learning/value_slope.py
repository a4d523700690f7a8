"""The gradient of a softened policy's value, which the oracle "direct" climbs."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedopl.messages.combining import WeightedMean
from fedopl.messages.message import Array, Asked, Axis, Message, Query
from fedopl.study.study import Study


@dataclass(frozen=True, eq=False, kw_only=True)
class Slope(Message):
    """The gradient of the softened policy's value."""

    code: ClassVar[int] = 71
    gradient: Annotated[Array, (Axis.ACTIONS, Axis.PARAMETERS), WeightedMean()]


@dataclass(frozen=True, eq=False, kw_only=True)
class SlopeOfValue(Query[Slope]):
    """Ask which way the value of the softened policy rises."""

    code: ClassVar[int] = 7
    answer: ClassVar[type[Message]] = Slope
    asked: ClassVar[Asked] = Asked.TOTAL
    title: ClassVar[str] = "Which way is better"
    content: ClassVar[str] = "the slope of the value, by parameter"
    budget: ClassVar[str | None] = "slope_queries"
    temperature: float
    parameters: Annotated[Array, (Axis.ACTIONS, Axis.PARAMETERS)]

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Of the oracle "direct"."""
        return study.policy.kind == "linear" and study.linear.oracle == "direct"
