"""The values of a policy and every action at a target, by weights for all sources' rows together.

The target's part is that of `transported_values`. Every source weights its rows by the η that
was found with all sources' sums, so that only all of them together resemble the target.
"""

from typing import Annotated

from fedopl.messages.combining import PerClient
from fedopl.messages.evaluation.policy_fields import AsksByFold, n_versions_in
from fedopl.messages.message import Array, Asked, Axis, message
from fedopl.messages.target.transported_values import TransportedValues, fault_in_transported
from fedopl.study.study import Study


@message
class JointValues(TransportedValues, code=126):
    """The same means and covariances, and what each row's weight and its part in a mean share.

    `crossed` are Σ W·u over rows or groups, where W is the weight of one and u what it adds to a
    mean. With these, the server gets the error about the mean of all sources.
    """

    crossed: Annotated[Array, (Axis.TARGET_VALUES,), PerClient]


@message
class ValueJointly(
    AsksByFold[JointValues],
    code=61,
    asked=Asked.EACH,
    permission="values",
):
    """Ask the target, and sources under weights found together, for the value of a policy."""

    title = "What the policy is worth at the target, by all sources' rows together"
    content = "means of values and of what they leave of scores, how precise they are, and shares"
    share: float  # the client's share of all sources' weights
    models: Annotated[Array, (Axis.MODELS, Axis.ACTIONS, Axis.TERMS)]  # one for each version
    centres: Annotated[Array, (Axis.PARAMETERS,)]
    scales: Annotated[Array, (Axis.PARAMETERS,)]
    slopes: Annotated[Array, (Axis.BALANCED,)]  # η
    regions: Annotated[Array, (Axis.REGIONS, Axis.PARAMETERS)]  # a row is in one if θᵀ(x, 1) > 0

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether weights may be found for all sources' rows together."""
        return study.target is not None and study.target.may_balance_jointly

    def is_plausible(self, study: Study) -> bool:
        """Check for one policy in all versions, scales above zero and a share of a whole."""
        fits = 0 <= self.share <= 1 and bool((self.scales > 0).all())
        fits = fits and self.is_one_valued(study) and len(self.models) == n_versions_in(study)
        return fits and super().is_plausible(study)

    def fault_in(self, answer: JointValues, study: Study, n_rows: int) -> str | None:
        """Check the number of rows, and that covariances fit the means."""
        if not answer.released and answer.crossed.any():
            return "values that were not released"
        return fault_in_transported(answer, study, n_rows)
