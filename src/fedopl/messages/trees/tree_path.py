"""Gains and spending of trees along a path of prices, on held-out rows."""

from typing import Annotated

from fedopl.base.arrays import FloatArray
from fedopl.messages.evaluation.price_curve import (
    PriceCurve,
    fault_in_curve,
    most_on_path,
)
from fedopl.messages.message import Array, Asked, Axis, Query, message
from fedopl.study.study import Study


@message
class ValueTrees(
    Query[PriceCurve],
    code=48,
    asked=Asked.EACH,
    budget="value_queries",
    lifetime="value_policies",
    permission="values",
):
    """Ask for each tree's gain over one action for all, and its spending."""

    title = "What trees gain and spend"
    content = "means of gains and of costs of 16 trees, and how precise they are"

    against: int  # the action that gains are over
    # Trees along the path, then a leaf for each action.
    trees: Annotated[Array, (Axis.PATH_TREES, Axis.TREE_NODES, Axis.NODE_NUMBERS)]

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether a tree has a budget."""
        return study.budget is not None and study.policy.on_grid

    @classmethod
    def most(cls, _study: Study) -> int:
        """One query: two paths of trees could differ in a single row."""
        return 1

    @property
    def amount(self) -> int:
        """One policy for each tree."""
        return len(self.trees)

    @classmethod
    def most_amount(cls, study: Study) -> float:
        """As for policies at prices."""
        return most_on_path(study)

    def arrays(self) -> list[FloatArray]:
        """Empty: a tree's numbers only lead to actions, whatever they are."""
        return []

    def is_plausible(self, study: Study) -> bool:
        """Check that the action exists."""
        return 0 <= self.against < study.n_actions

    def fault_in(self, answer: PriceCurve, study: Study, n_rows: int) -> str | None:
        """Check for a path of all trees, on rows that exist."""
        return fault_in_curve(answer, study, n_rows)
