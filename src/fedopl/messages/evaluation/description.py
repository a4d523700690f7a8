"""How a policy's decisions split over groups, and how well the actions are supported."""

from typing import Annotated

from fedopl.messages.combining import PerClient
from fedopl.messages.evaluation.policy_fields import AsksAboutPolicies
from fedopl.messages.message import Array, Asked, Axis, Message, message
from fedopl.messages.plausibility import SLACK, fault_in_counts
from fedopl.study.study import Study

# A feature is cut in three places; propensities at these.
N_CUTS = 3
CHANCE_CUTS = (0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)


@message
class Description(Message, code=73):
    """Counts of training rows, and how many rows each action's value rests on."""

    decided: Annotated[Array, (Axis.PARAMETERS, Axis.BINS, Axis.ACTIONS), PerClient]  # by policy
    taken: Annotated[Array, (Axis.PARAMETERS, Axis.BINS, Axis.ACTIONS), PerClient]  # as logged
    chances: Annotated[Array, (Axis.ACTIONS, Axis.CHANCE_BINS), PerClient]  # rows by propensity
    # (Σw)²/Σw² over takers, w = 1/propensity
    effective_rows: Annotated[Array, (Axis.ACTIONS,), PerClient]


@message
class Describe(AsksAboutPolicies[Description], code=9, asked=Asked.EACH):
    """Ask how one policy's decisions split over groups, and how well the actions are supported."""

    title = "How decisions split"
    content = "counts by group, and effective rows"
    cuts: Annotated[Array, (Axis.PARAMETERS, Axis.CUTS)]  # of each feature, rising

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Where the study describes what it learned."""
        return study.evaluation.describe

    def fault_in(self, answer: Description, _study: Study, n_rows: int) -> str | None:
        """Counts are whole, not negative, and add up to the rows."""
        for counts in (answer.decided, answer.taken):
            fault = fault_in_counts(counts.reshape(len(counts), -1), n_rows)
            if fault:
                return fault
            if counts[-1].sum() != n_rows:
                return f"describes {counts[-1].sum():,.0f} rows, it enrolled with {n_rows:,}"
        if (answer.chances < 0).any() or (answer.effective_rows < 0).any():
            return "a count is negative"
        if max(answer.chances.sum(axis=1).max(), answer.effective_rows.max()) > n_rows + SLACK:
            return "counts more rows than there are"
        return None
