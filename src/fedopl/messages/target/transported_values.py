"""The values of a policy and every action at a site without outcomes, from both sides.

All parties get the same models μ̂. The target reports the mean of μ̂(x; π(x)) over its contexts.
Every source reports the mean of Γ̂(π) − μ̂(π) over held-out rows, weighted so that they resemble
the target. The sum of both is doubly robust. If values are cross-fitted, π and μ̂ have a version
without each fold: a source takes that of the row's fold, in all of its rows, the target the mean of
all.
"""

from typing import Annotated

import numpy as np

from fedopl.messages.combining import PerClient
from fedopl.messages.evaluation.policy_fields import AsksByFold, n_versions_in, valued_split
from fedopl.messages.evaluation.policy_values import most_rows
from fedopl.messages.message import Array, Asked, Axis, Message, message
from fedopl.messages.plausibility import CORNER_TOLERANCE, fault_in_moments
from fedopl.messages.target.context_moments import fault_in_squares_of_means
from fedopl.study.study import Study

# Regions in which the target may have people that no source has seen.
N_REGIONS = 4


@message
class TransportedValues(Message, code=121):
    """Means of the policy's and of every action's values, and the covariances of those means.

    At a source they are of scores minus models. `released` is 0 if no weights make its rows
    resemble the target, or if such weights would depend on too few rows.
    """

    released: Annotated[int, PerClient]
    n_rows: Annotated[int, PerClient]
    effective_rows: Annotated[float, PerClient]  # (Σw)²/Σw²; 0 where not released
    known: Annotated[Array, (Axis.TARGET_VALUES,), PerClient]  # 0 where there are no scores
    means: Annotated[Array, (Axis.TARGET_VALUES,), PerClient]
    covariances: Annotated[Array, (Axis.TARGET_VALUES, Axis.TARGET_VALUES), PerClient]
    shares: Annotated[Array, (Axis.REGIONS,), PerClient]  # of rows in each region
    apart: Annotated[float, PerClient]  # how often two versions of the policy differ in a row


@message
class ValueAtTarget(
    AsksByFold[TransportedValues],
    code=55,
    asked=Asked.EACH,
    permission="values",
):
    """Ask the target, and sources weighted to resemble it, for the value of a policy."""

    title = "What the policy is worth at the target"
    content = "means of values and of what they leave of scores, how precise they are, and shares"
    models: Annotated[Array, (Axis.MODELS, Axis.ACTIONS, Axis.TERMS)]  # one for each version
    means: Annotated[Array, (Axis.PARAMETERS,)]  # of the target's contexts
    squares: Annotated[Array, (Axis.PARAMETERS,)]
    regions: Annotated[Array, (Axis.REGIONS, Axis.PARAMETERS)]  # a row is in one if θᵀ(x, 1) > 0

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether the study has a target, and sources may find weights of their own."""
        return study.target is not None and study.target.asks_each

    def is_plausible(self, study: Study) -> bool:
        """Check for one policy in all versions, and for moments that contexts can have."""
        fault = fault_in_squares_of_means(self.means, self.squares)
        fits = self.is_one_valued(study) and len(self.models) == n_versions_in(study)
        return fits and not fault and super().is_plausible(study)

    def fault_in(self, answer: TransportedValues, study: Study, n_rows: int) -> str | None:
        """Check the number of rows, and that covariances fit the means."""
        return fault_in_transported(answer, study, n_rows)


def fault_in_transported(answer: TransportedValues, study: Study, n_rows: int) -> str | None:
    """What cannot be true of an answer about values at a target."""
    if answer.released not in (0, 1) or not np.isin(answer.known, (0.0, 1.0)).all():
        return "tells a part of its values"
    if answer.n_rows < 1 or answer.n_rows > most_rows(study, valued_split(study), n_rows):
        return f"values of {answer.n_rows:,} rows, of which it has fewer"
    if not 0 <= answer.effective_rows <= answer.n_rows * (1 + CORNER_TOLERANCE):
        return f"{answer.effective_rows:g} effective rows of {answer.n_rows:,}"
    if ((answer.shares < 0) | (answer.shares > 1 + CORNER_TOLERANCE)).any():
        return "a share of rows is outside 0 to 1"
    if not 0 <= answer.apart <= 1 + CORNER_TOLERANCE:
        return "versions differ in a share of rows that is outside 0 to 1"
    if not answer.released:
        return "values that were not released" if answer.means.any() else None
    return fault_in_moments(answer.covariances)
