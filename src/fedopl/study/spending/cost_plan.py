"""What actions cost: a number or a feature that gives it row by row, and the unit of costs."""

from typing import TYPE_CHECKING, Self

import numpy as np
from pydantic import Field, model_validator

from fedopl.base.arrays import FloatArray
from fedopl.base.labels import quoted
from fedopl.base.validation import Checked, PlacedError

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
