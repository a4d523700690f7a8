"""How much may be spent: a mean cost per decision, or the share of people who may get an action."""

from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from fedopl.base.arrays import FloatArray
from fedopl.base.labels import quoted
from fedopl.base.validation import Checked, PlacedError
from fedopl.policies.trees.tree_plan import LOOK_AHEAD
from fedopl.study.mixture import FOUND

if TYPE_CHECKING:
    from fedopl.study.study import Study

EACH_CLIENT = "each client"


class Budget(Checked):
    """What decisions may cost on average: by the study's costs, or counting one action's share."""

    most: float | None = Field(
        default=None, gt=0, description="the mean cost of a decision, at most, in the costs' unit"
    )
    shares: dict[str, float] = Field(
        default_factory=dict,
        description="or an action, and the largest share of people who may get it",
    )
    per: Literal["all", "each client"] = Field(
        default="all", description="whether it holds for all clients together, or at each of them"
    )
    confidence: float = Field(
        default=0.5,
        ge=0.5,
        lt=1,
        description="confidence with which the budget holds: at 0.5 the estimated spending stays "
        "within it, at 0.95 an upper bound of the spending does",
    )

    between: Literal["price", "cheaper"] = Field(
        default="price",
        description="if the budget falls between two prices that clients were asked about: take "
        "a price between them, or the higher one",
    )

    @model_validator(mode="after")
    def _is_one_limit(self) -> Self:
        if (self.most is None) == (not self.shares):
            raise PlacedError(
                "most", "say either most, a mean cost per decision, or shares, of one action"
            )
        if len(self.shares) > 1:
            message = f"a budget is of one action, came {quoted(list(self.shares))}"
            raise PlacedError("shares", message)
        for action, share in self.shares.items():
            if not 0 < share <= 1:
                message = f"'{action}': expected a share above 0 and up to 1, came {share:g}"
                raise PlacedError("shares", message, ("shares", action))
        return self

    @property
    def limit(self) -> float:
        """The limit on spending."""
        return next(iter(self.shares.values())) if self.most is None else self.most

    @property
    def is_per_client(self) -> bool:
        """Whether the budget holds at each client."""
        return self.per == EACH_CLIENT

    def spent(self, study: "Study") -> FloatArray:  # (n_actions, n_features + 1)
        """What counts as spending, as linear functions of features: costs, or 1 for an action."""
        if self.most is not None and study.costs:
            return study.costs.parameters(study)
        found = np.zeros((study.n_actions, study.n_features + 1))
        found[study.actions.index(next(iter(self.shares))), -1] = 1.0
        return found

    def unit(self, study: "Study") -> str:
        """The unit of spending, in words."""
        if self.most is None:
            return f"of people who get '{next(iter(self.shares))}'"
        costs = study.costs
        return "of costs" if costs is None or costs.are_net else str(costs.unit)

    def check(self, study: "Study") -> None:
        """Raise a PlacedError unless the study can keep the budget."""
        self._check_costs(study)
        refused = {
            "only a linear policy by csoaa-exact, on shared features, a tree of depth 1 or 2 on a "
            "grid, and candidates have prices for what they spend": not _has_prices(study),
            "what a tree spends is computed from sums over its grid, which do not contain a "
            "column of costs; give costs as numbers, or learn a linear policy": (
                study.policy.on_grid and study.costs is not None and bool(study.costs.columns)
            ),
            "spending is measured as values are, and none are claimed; hold rows out": (
                not study.evaluation.claims_values
            ),
            "a cautious policy has no prices for what it spends; set caution = 0": (
                study.is_cautious or study.doubts_leaves
            ),
            "spending is measured under one split": study.evaluation.splits > 1,
            "joining is judged by policies without a budget; judge it in a study without one": (
                study.joining.diagnose
            ),
            f"a {study.mixture.kind} mixture is found with policies that ignore the budget; "
            "agree on the weights": study.mixture.kind in FOUND,
            "sums with noise have no prices for what is spent": study.privacy is not None,
        }
        for message, is_so in refused.items():
            if is_so:
                raise PlacedError("budget", message)

    def _check_costs(self, study: "Study") -> None:
        costs = study.costs
        for action in self.shares:
            if action not in study.actions:
                message = f"'{action}' is not an action; there are {quoted(study.actions)}"
                raise PlacedError("budget", message, ("budget", "shares", action))
        if self.most is None:
            return
        if costs is None:
            message = "no action costs anything; say what they cost, or cap an action by shares"
            raise PlacedError("budget", message, ("budget", "most"))
        if costs.unit is None:
            message = (
                'say in which unit costs are: "outcome" if they are also to be subtracted from it, '
                'or another, such as "euros"'
            )
            raise PlacedError("budget", message, ("costs", "unit"))
        constant = [costs.by_action.get(action, 0.0) for action in study.actions]
        numbers = [float(cost) for cost in constant if not isinstance(cost, str)]
        if len(numbers) == len(constant) and min(numbers) > self.most:
            message = f"even the cheapest action costs {min(numbers):g}, more than {self.most:g}"
            raise PlacedError("budget", message, ("budget", "most"))


def _has_prices(study: "Study") -> bool:
    """Whether policies at each price follow from the available sums."""
    if study.policy.compares_candidates:
        return True
    if study.policy.on_grid:
        return study.tree.depth <= LOOK_AHEAD
    return study.policy.kind == "linear" and study.linear.can_bend
