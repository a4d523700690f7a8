"""Messages about policies: what they are worth on a client's rows, and how they decide."""

from typing import Annotated

from fedopl.messages.combining import PerClient
from fedopl.messages.message import (
    AnswerType,
    Array,
    Asked,
    Axis,
    Message,
    Query,
    RowSplit,
    message,
)
from fedopl.messages.plausibility import fault_in_counts, fault_in_squares
from fedopl.policies.kinds import KINDS
from fedopl.policies.packing import POLICY_FIELDS, RULES
from fedopl.study.study import Study

# Every client adds two candidates to those it is asked about: the logging policy and its own.
N_OWN_CANDIDATES = 2
# Policies that one query may at least ask about in a study that diagnoses.
MOST_DIAGNOSED = 128
# A described feature is cut in three places; propensities at these.
N_CUTS = 3
CHANCE_CUTS = (0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)


@message
class AsksAboutPolicies(Query[AnswerType]):
    """Policies as arrays in the order of the table of kinds, then positions of rules."""

    # Written by the kinds, so that a new kind of policy has its field without a line here.
    __annotations__ = {
        kind.message_field: Annotated[Array, tuple(Axis(axis) for axis in kind.message_axes)]
        for kind in KINDS.values()
    } | {RULES: Annotated[Array, (Axis.RULES,)]}  # positions among the candidates of the study

    @property
    def n_policies(self) -> int:
        """How many policies it asks about."""
        return sum(len(getattr(self, field)) for field in POLICY_FIELDS)


@message
class AsksAboutSplit(Query[AnswerType]):
    """The rows that an answer is about; as the last base of a query, its field is sent first."""

    split: RowSplit


@message
class Values(Message, code=72):
    """Means of the candidates' scores and the covariances of those means."""

    n_rows: Annotated[int, PerClient]
    degrees_of_freedom: Annotated[int, PerClient]
    means: Annotated[Array, (Axis.CANDIDATES,), PerClient]
    covariances: Annotated[Array, (Axis.CANDIDATES, Axis.CANDIDATES), PerClient]


@message
class EstimateValues(
    AsksAboutPolicies[Values],
    AsksAboutSplit[Values],
    code=8,
    asked=Asked.EACH,
    budget="value_queries",
    permission="values",
):
    """Ask what these policies are worth on rows of this split."""

    title = "What policies are worth"
    content = "means of values, and how precise they are"

    def fault_in(self, answer: Values, _study: Study, _n_rows: int) -> str | None:
        """One mean for each candidate, and covariances to go with them."""
        n_candidates = self.n_policies + N_OWN_CANDIDATES
        if len(answer.means) != n_candidates or answer.n_rows < 1:
            return f"valued {len(answer.means)} policies of {n_candidates}"
        if answer.covariances.shape != (n_candidates, n_candidates):
            return "the covariances do not fit the means"
        if answer.degrees_of_freedom < 0:
            return "the degrees of freedom are negative"
        return fault_in_squares(answer.covariances)


def most_candidates(study: Study) -> int:
    """How many policies one query may ask about: constant arms, the study's own, and two more.

    Where joining is judged, there are those of coalitions, mixtures and contrasts, too.
    """
    own = study.n_actions + len(study.candidates) + 2
    return max(own, MOST_DIAGNOSED) if study.joining.diagnose else own


@message
class Description(Message, code=73):
    """Rounded counts of training rows, and how many rows each action's value rests on."""

    decided: Annotated[Array, (Axis.PARAMETERS, Axis.BINS, Axis.ACTIONS), PerClient]  # by policy
    taken: Annotated[Array, (Axis.PARAMETERS, Axis.BINS, Axis.ACTIONS), PerClient]  # as logged
    chances: Annotated[Array, (Axis.ACTIONS, Axis.CHANCE_BINS), PerClient]  # rows by propensity
    # (Σw)²/Σw² over takers, w = 1/propensity
    effective_rows: Annotated[Array, (Axis.ACTIONS,), PerClient]


@message
class Describe(AsksAboutPolicies[Description], code=9, asked=Asked.EACH, budget="descriptions"):
    """Ask how one policy's decisions split over groups, and how well the actions are supported."""

    title = "How decisions split"
    content = "rounded counts by group, and effective rows"
    cuts: Annotated[Array, (Axis.PARAMETERS, Axis.CUTS)]  # of each feature, rising

    def fault_in(self, answer: Description, _study: Study, n_rows: int) -> str | None:
        """Counts are whole, not negative, and add up to the rows, but for rounding."""
        for counts in (answer.decided, answer.taken):
            fault = fault_in_counts(counts.reshape(len(counts), -1), n_rows)
            if fault:
                return fault
        if (answer.chances < 0).any() or (answer.effective_rows < 0).any():
            return "a count is negative"
        return None
