"""What actions cost, and how much may be spent: on average, or on the share that gets an action."""

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

# The unit of costs that are in the unit of the outcome.
SAME_UNIT = "outcome"
LARGEST_COST = 1e12

Cost = float | str


class Costs(Checked):
    """What each action costs per decision; those not named cost nothing.

    Costs in the unit of the outcome are subtracted from it, so all values are net values. Costs in
    another unit are not part of values; a budget then says how much may be spent.
    """

    by_action: dict[str, Cost] = Field(
        min_length=1,
        description="what an action costs: a number, or the feature with its cost in each row; "
        "actions not named cost nothing",
    )
    unit: str | None = Field(
        default=None,
        min_length=1,
        description='of costs: "outcome", as if not said, subtracts them from outcomes; any other '
        "needs a budget",
    )

    @model_validator(mode="after")
    def _costs_anything(self) -> Self:
        for action, cost in self.by_action.items():
            if not isinstance(cost, str) and not 0 <= cost <= LARGEST_COST:
                message = f"'{action}': expected 0 to {LARGEST_COST:g}, came {cost:g}"
                raise PlacedError("by_action", message, ("by_action", action))
        if not any(self.by_action.values()):
            raise PlacedError("by_action", "every action costs nothing; leave costs out")
        return self

    @property
    def are_net(self) -> bool:
        """Whether costs are in the outcome's unit, and so subtracted from the outcome."""
        return self.unit in (None, SAME_UNIT)

    @property
    def columns(self) -> tuple[str, ...]:
        """The features that hold the cost of an action."""
        return tuple(dict.fromkeys(c for c in self.by_action.values() if isinstance(c, str)))

    @property
    def largest(self) -> float | None:
        """The largest cost of an action; None if a feature holds it."""
        return None if self.columns else max(float(cost) for cost in self.by_action.values())

    def parameters(self, study: "Study") -> FloatArray:  # (n_actions, n_features + 1)
        """c_a(x) as a linear function of features: a constant, or the feature itself."""
        found = np.zeros((study.n_actions, study.n_features + 1))
        for action, cost in self.by_action.items():
            place = study.features.index(cost) if isinstance(cost, str) else -1
            found[study.actions.index(action), place] = 1.0 if isinstance(cost, str) else cost
        return found

    @property
    def in_words(self) -> str:
        """Each cost by action."""
        said = [
            f"'{action}' costs {f'what {cost!r} says' if isinstance(cost, str) else f'{cost:g}'}"
            for action, cost in self.by_action.items()
        ]
        return ", ".join(said)

    def check(self, study: "Study") -> None:
        """Raise a PlacedError unless actions and features are the study's, and costs usable."""
        for action, cost in self.by_action.items():
            place = ("costs", "by_action", action)
            if action not in study.actions:
                message = f"'{action}' is not an action; there are {quoted(study.actions)}"
                raise PlacedError("costs", message, place)
            numbers = study.encoding.numeric if study.encoding else study.features
            if isinstance(cost, str) and cost not in numbers:
                message = (
                    f"'{action}' costs '{cost}', which is not a feature with numbers: a "
                    "decision at a price depends on the cost. Name a number, or one of "
                    f"{quoted(numbers)}"
                )
                raise PlacedError("costs", message, place)
        if not self.are_net and (study.budget is None or study.budget.most is None):
            message = (
                f"costs in '{self.unit}' have no part in values, and no budget says how much may "
                "be spent; name it ([budget] most), or give costs in the outcome's unit"
            )
            raise PlacedError("costs", message, ("costs", "unit"))
        if study.privacy:
            message = (
                "costs are not subtracted from sums with noise; subtract them from outcomes before "
                "the study, and widen the outcome's range"
            )
            raise PlacedError("costs", message, ("costs", "by_action"))


def net_words(study: "Study") -> str:
    """What values mean if costs are part of them, after the outcome's name; otherwise empty."""
    if study.net_costs is None:
        return ""
    return "net of costs" if study.reward_sign > 0 else "plus costs"


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
