"""What policies are worth on a client's rows, and how those values vary together."""

from typing import Annotated

from fedopl.messages.combining import PerClient
from fedopl.messages.evaluation.policy_fields import AsksAboutPolicies, AsksAboutSplit
from fedopl.messages.message import Array, Asked, Axis, Message, message
from fedopl.messages.plausibility import fault_in_squares
from fedopl.study.study import Study

# Every client adds two candidates to those it is asked about: the logging policy and its own.
N_OWN_CANDIDATES = 2
# Policies that one query may at least ask about in a study that diagnoses.
MOST_DIAGNOSED = 128


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
