"""What each action is worth in each leaf of a finished tree, on held-out rows."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedopl.messages.combining import PerClient
from fedopl.messages.message import Array, Asked, Axis, Message, Query
from fedopl.messages.plausibility import CELL_TOLERANCE
from fedopl.policies.trees.nodes import LEAF
from fedopl.study.study import Study


@dataclass(frozen=True, eq=False, kw_only=True)
class LeafValues(Message):
    """By leaf: its share of held-out rows, and the mean score of each action with its variance.

    Zero rows where a leaf, or an action in it, has too few of them; counts are rounded by chance.
    """

    code: ClassVar[int] = 76
    counts: Annotated[Array, (Axis.LEAVES,), PerClient()]
    shares: Annotated[Array, (Axis.LEAVES,), PerClient()]
    rows: Annotated[Array, (Axis.LEAVES, Axis.ACTIONS), PerClient()]
    degrees_of_freedom: Annotated[Array, (Axis.LEAVES, Axis.ACTIONS), PerClient()]
    means: Annotated[Array, (Axis.LEAVES, Axis.ACTIONS), PerClient()]
    variances: Annotated[Array, (Axis.LEAVES, Axis.ACTIONS), PerClient()]  # of the means


@dataclass(frozen=True, eq=False, kw_only=True)
class ValueLeaves(Query[LeafValues]):
    """Ask what each action is worth in each leaf of a tree, on held-out rows."""

    code: ClassVar[int] = 12
    answer: ClassVar[type[Message]] = LeafValues
    asked: ClassVar[Asked] = Asked.EACH
    title: ClassVar[str] = "What leaves are worth"
    content: ClassVar[str] = "by leaf: its share of rows, and means of scores"
    budget: ClassVar[str | None] = "descriptions"
    permission: ClassVar[str | None] = "values"
    tree: Annotated[Array, (Axis.TREE_NODES, Axis.NODE_NUMBERS)]

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Where a tree is learned, described and evaluated."""
        return study.values_leaves

    def fault_in(self, answer: LeafValues, _study: Study, _n_rows: int) -> str | None:
        """Shares of rows in every leaf, and means that vary."""
        n_leaves = int((self.tree[:, 0] == LEAF).sum())
        numbers = (answer.counts, answer.rows, answer.degrees_of_freedom, answer.variances)
        if any(len(part) != n_leaves for part in (*numbers, answer.shares, answer.means)):
            return "the leaves are not those of the tree"
        if (answer.shares < 0).any() or answer.shares.sum() > 1 + CELL_TOLERANCE:
            return "a share of rows is outside 0 to 1"
        if min(part.min() for part in numbers) < 0:
            return "a number of rows or a variance is negative"
        return None
