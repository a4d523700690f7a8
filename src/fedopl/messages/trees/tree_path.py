"""Gains and spending of trees along a path of prices, on held-out rows."""

from typing import Annotated

from fedopl.base.arrays import FloatArray
from fedopl.messages.evaluation.price_curve import AsksForCurve
from fedopl.messages.message import Array, Asked, Axis, message
from fedopl.study.study import Study


@message
class ValueTrees(
    AsksForCurve,
    code=48,
    asked=Asked.EACH,
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

    def arrays(self) -> list[FloatArray]:
        """Empty: a tree's numbers only lead to actions, whatever they are."""
        return []

    def is_plausible(self, study: Study) -> bool:
        """Check that the action exists."""
        return 0 <= self.against < study.n_actions
