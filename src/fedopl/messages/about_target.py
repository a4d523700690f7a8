"""Messages about a site without outcomes: its contexts, rows that look like them, and values there.

All parties get the same models μ̂. The target reports the mean of μ̂(x; π(x)) over its contexts.
Every source reports the mean of Γ̂(π) − μ̂(π) over valued rows, weighted so that they resemble
the target: by weights of its own, or by those that were found for all sources' rows together. The
sum of both is doubly robust. If values are cross-fitted, π and μ̂ have a version without each fold:
a source takes that of the row's fold, in all of its rows, the target the mean of all.

A row weighs exp(ηᵀb(x)), where b has every feature z = (x − centre)/scale and its square. For
weights of all rows together, the server looks for the η at which the means of b, over all sources,
are the target's (Newton's method). Each step takes one answer of every source.
"""

from dataclasses import field
from typing import Annotated

import numpy as np

from fedopl.messages.combining import PerClient
from fedopl.messages.evaluation.policy_fields import AsksByFold, n_versions_in, valued_split
from fedopl.messages.evaluation.policy_values import most_rows
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.plausibility import CELL_TOLERANCE, CORNER_TOLERANCE, fault_in_moments
from fedopl.policies.kinds import RULES
from fedopl.study.study import Study


@message
class ContextMoments(Message, code=120):
    """Weighted means over all rows of (x, 1) and of its squares."""

    n_rows: Annotated[int, PerClient]
    means: Annotated[Array, (Axis.PARAMETERS,), PerClient]
    squares: Annotated[Array, (Axis.PARAMETERS,), PerClient]


@message
class TellContexts(Query[ContextMoments], code=54, asked=Asked.EACH):
    """Ask the target for means of its contexts; no other client answers."""

    title = "What the target's contexts are like"
    content = "means of the features and of their squares"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether the study has a target."""
        return study.target is not None

    def fault_in(self, answer: ContextMoments, _study: Study, _n_rows: int) -> str | None:
        """Check that means of one are one, and mean squares at least the squared means."""
        if answer.n_rows < 1:
            return "has no rows"
        corners = np.array([answer.means[-1], answer.squares[-1]])
        if (np.abs(corners - 1) > CORNER_TOLERANCE).any():
            return "the mean of one is not one"
        return fault_in_squares_of_means(answer.means, answer.squares)


def fault_in_squares_of_means(means: Array, squares: Array) -> str | None:
    """What cannot be true of means and mean squares of the same rows."""
    if (squares < means**2 * (1 - CORNER_TOLERANCE)).any():
        return "a mean of squares is below the square of the mean"
    return None


# Steps to which a source answers, and after which the server stops.
MOST_BALANCING_STEPS = 8


@message
class BalanceSums(Message, code=125):
    """Weighted means of b and of its products over valued rows, and the mean weight's logarithm.

    `released` is 0 if the weights would depend on too few rows: then all else is zero.
    """

    released: Annotated[int, PerClient]
    scored: Annotated[int, PerClient]  # 0 if rows lack the score of an action
    n_rows: Annotated[int, PerClient]
    log_weight: Annotated[float, PerClient]
    means: Annotated[Array, (Axis.BALANCED,), PerClient]
    products: Annotated[Array, (Axis.BALANCED, Axis.BALANCED), PerClient]


@message
class BalanceContexts(Query[BalanceSums], code=60, asked=Asked.EACH):
    """Ask sources what their contexts are like under weights exp(ηᵀb(x))."""

    title = "How sources' rows together come to look like the target's"
    content = "means and products of features and of their squares, under weights"
    centres: Annotated[Array, (Axis.PARAMETERS,)]
    scales: Annotated[Array, (Axis.PARAMETERS,)]
    slopes: Annotated[Array, (Axis.BALANCED,)]  # η

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether weights may be found for all sources' rows together."""
        return study.target is not None and study.target.may_balance_jointly

    @classmethod
    def most(cls, _study: Study) -> int:
        """As many steps as the server takes."""
        return MOST_BALANCING_STEPS

    def is_plausible(self, study: Study) -> bool:
        """Check for scales above zero."""
        return bool((self.scales > 0).all()) and super().is_plausible(study)

    def fault_in(self, answer: BalanceSums, study: Study, n_rows: int) -> str | None:
        """Check the number of rows, and that products fit the means."""
        if answer.released not in (0, 1) or answer.scored not in (0, 1):
            return "tells a part of its sums"
        if answer.n_rows < 1 or answer.n_rows > most_rows(study, valued_split(study), n_rows):
            return f"sums of {answer.n_rows:,} rows, of which it has fewer"
        if not answer.released:
            return "sums that were not released" if answer.means.any() else None
        # The logarithm F of the mean weight is convex in η, and 0 at 0: so F(η) ≤ ηᵀ∇F(η).
        most = float(self.slopes @ answer.means)
        if answer.log_weight > most + CELL_TOLERANCE * (1 + abs(most)):
            return "weighs more than its means allow"
        means = answer.means[:, None]  # of products of terms with a one
        return fault_in_moments(np.block([[answer.products, means], [means.T, np.ones((1, 1))]]))


# Regions in which the target may have people that no source has seen.
N_REGIONS = 4


@message
class TransportedValues(Message, code=157):
    """Means of the policy's and of every action's values, and the covariances of those means.

    At a source they are of scores minus models. `released` is 0 if no weights make its rows
    resemble the target, or if such weights would depend on too few rows. `crossed` are Σ W·u over
    rows or groups, where W is the weight of one and u what it adds to a mean: with these, the
    server gets the error about the mean of all sources.
    """

    released: Annotated[int, PerClient]
    n_rows: Annotated[int, PerClient]
    effective_rows: Annotated[float, PerClient]  # (Σw)²/Σw²; 0 where not released
    known: Annotated[Array, (Axis.TARGET_VALUES,), PerClient]  # 0 where there are no scores
    means: Annotated[Array, (Axis.TARGET_VALUES,), PerClient]
    covariances: Annotated[Array, (Axis.TARGET_VALUES, Axis.TARGET_VALUES), PerClient]
    crossed: Annotated[Array, (Axis.TARGET_VALUES,), PerClient]
    shares: Annotated[Array, (Axis.REGIONS,), PerClient]  # of rows in each region
    apart: Annotated[float, PerClient]  # how often two versions of the policy differ in a row


@message
class ValueAtTarget(
    AsksByFold[TransportedValues],
    code=156,
    asked=Asked.EACH,
    permission="values",
):
    """Ask the target, and sources weighted to resemble it, for the value of a policy.

    Without `slopes`, each source finds its own weights.
    """

    title = "What the policy is worth at the target"
    content = "means of values and of what they leave of scores, how precise they are, and shares"
    models: Annotated[Array, (Axis.MODELS, Axis.ACTIONS, Axis.TERMS)]  # one for each version
    means: Annotated[Array, (Axis.PARAMETERS,)]  # of the target's contexts
    squares: Annotated[Array, (Axis.PARAMETERS,)]
    regions: Annotated[Array, (Axis.REGIONS, Axis.PARAMETERS)]  # a row is in one if θᵀ(x, 1) > 0
    # Of weights for all sources' rows together: the client's share of them, and as in
    # `BalanceContexts`.
    share: float = 1.0
    centres: Annotated[Array, (Axis.UNITS,)] = field(default_factory=lambda: np.empty(0))
    scales: Annotated[Array, (Axis.UNITS,)] = field(default_factory=lambda: np.empty(0))
    slopes: Annotated[Array, (Axis.SLOPES,)] = field(default_factory=lambda: np.empty(0))

    @property
    def is_joint(self) -> bool:
        """Whether weights were found for all sources' rows together."""
        return bool(len(self.slopes))

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether the study has a target."""
        return study.target is not None

    @classmethod
    def most(cls, study: Study) -> int:
        """One by each way in which the study may find weights."""
        plan = study.target
        return plan.asks_each + plan.may_balance_jointly if plan else 0

    def is_plausible(self, study: Study) -> bool:
        """One policy that the target has, moments of contexts, and weights as agreed."""
        plan, joint = study.target, self.is_joint
        if plan is None or not (plan.may_balance_jointly if joint else plan.asks_each):
            return False
        fits = len(self.centres) == len(self.scales) == joint * len(self.means)
        fits = fits and bool((self.scales > 0).all())
        fits = fits and (0 <= self.share <= 1 if joint else self.share == 1)
        fits = fits and not len(getattr(self, RULES)) and self.is_one_valued(study)
        fits = fits and len(self.models) == n_versions_in(study)
        fits = fits and not fault_in_squares_of_means(self.means, self.squares)
        return fits and super().is_plausible(study)

    def fault_in(self, answer: TransportedValues, study: Study, n_rows: int) -> str | None:
        """Check the number of rows, and that covariances fit the means."""
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
            told = answer.means.any() or answer.crossed.any()
            return "values that were not released" if told else None
        return fault_in_moments(answer.covariances)
