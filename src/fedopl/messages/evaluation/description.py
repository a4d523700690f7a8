"""How a policy's decisions split over groups, and how well the actions are supported."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedopl.messages.combining import PerClient
from fedopl.messages.evaluation.policy_fields import AsksAboutPolicies
from fedopl.messages.message import Array, Asked, Axis, Message
from fedopl.messages.plausibility import fault_in_counts
from fedopl.study.study import Study

# A feature is cut in three places; propensities at these.
N_CUTS = 3
CHANCE_CUTS = (0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)


@dataclass(frozen=True, eq=False, kw_only=True)
class Description(Message):
    """Rounded counts of training rows, and how many rows each action's value rests on."""

    code: ClassVar[int] = 73
    decided: Annotated[Array, (Axis.PARAMETERS, Axis.BINS, Axis.ACTIONS), PerClient()]  # by policy
    taken: Annotated[Array, (Axis.PARAMETERS, Axis.BINS, Axis.ACTIONS), PerClient()]  # as logged
    chances: Annotated[Array, (Axis.ACTIONS, Axis.CHANCE_BINS), PerClient()]  # rows by propensity
    # (Σw)²/Σw² over takers, w = 1/propensity
    effective_rows: Annotated[Array, (Axis.ACTIONS,), PerClient()]


@dataclass(frozen=True, eq=False, kw_only=True)
class Describe(AsksAboutPolicies[Description]):
    """Ask how one policy's decisions split over groups, and how well the actions are supported."""

    code: ClassVar[int] = 9
    answer: ClassVar[type[Message]] = Description
    asked: ClassVar[Asked] = Asked.EACH
    title: ClassVar[str] = "How decisions split"
    content: ClassVar[str] = "rounded counts by group, and effective rows"
    budget: ClassVar[str | None] = "descriptions"
    cuts: Annotated[Array, (Axis.PARAMETERS, Axis.CUTS)]  # of each feature, rising

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Where the study describes what it learned."""
        return study.evaluation.describe

    def fault_in(self, answer: Description, _study: Study, n_rows: int) -> str | None:
        """Counts are whole, not negative, and add up to the rows, but for rounding."""
        for counts in (answer.decided, answer.taken):
            fault = fault_in_counts(counts.reshape(len(counts), -1), n_rows)
            if fault:
                return fault
        if (answer.chances < 0).any() or (answer.effective_rows < 0).any():
            return "a count is negative"
        return None
