"""What is expected in each leaf of a finished tree, on rows that had no part in it."""

from typing import Annotated

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.combining import PerClient
from fedopl.messages.evaluation.policy_values import Values, most_rows
from fedopl.messages.message import Array, Asked, Axis, Message, Query, RowSplit, message
from fedopl.messages.plausibility import CELL_TOLERANCE
from fedopl.policies.trees.nodes import LEAF
from fedopl.study.study import Study

# If values are cross-fitted: the value, the gain over what was done, the share decided alike.
N_BY_FOLD = 3
_ALIKE = 2


@message
class LeafValues(Message, code=76):
    """By leaf: its share of valued rows, and the mean score of each action with its variance.

    If values are cross-fitted, in place of actions: the mean score of what the tree that was
    learned without a row's fold decides for it, how much that is above what was done, and whether
    it is the action of the leaf. Zero rows if a leaf, or a number of it, has too few.
    """

    counts: Annotated[Array, (Axis.LEAVES,), PerClient]
    shares: Annotated[Array, (Axis.LEAVES,), PerClient]
    rows: Annotated[Array, (Axis.LEAVES, Axis.LEAF_NUMBERS), PerClient]
    degrees_of_freedom: Annotated[Array, (Axis.LEAVES, Axis.LEAF_NUMBERS), PerClient]
    means: Annotated[Array, (Axis.LEAVES, Axis.LEAF_NUMBERS), PerClient]
    variances: Annotated[Array, (Axis.LEAVES, Axis.LEAF_NUMBERS), PerClient]  # of the means

    def of(self, leaf: int, number: int) -> Values:
        """A number of a leaf, as a value of its own."""
        return Values(
            n_rows=int(self.rows[leaf, number]),
            of_rows=int(self.rows[leaf, number]),
            degrees_of_freedom=int(self.degrees_of_freedom[leaf, number]),
            means=self.means[leaf, [number]],
            covariances=self.variances[leaf, [number], None],
        )

    def likely_shares(self) -> FloatArray:  # (n_leaves,)
        """Shares of rows; what is left is divided alike between leaves that were left out."""
        left_out = self.shares <= 0
        rest = max(1 - float(self.shares.sum()), 0.0)
        return np.where(left_out, rest / max(int(left_out.sum()), 1), self.shares)


@message
class ValueLeaves(Query[LeafValues], code=147, asked=Asked.EACH, permission="values"):
    """Ask for the value of each action in each leaf of a tree, on held-out rows.

    If values are cross-fitted, the trees that were learned without each fold come first, and decide
    for the rows of their folds: those of a leaf helped to find it, and say too much of its action.
    """

    title = "What leaves are worth"
    content = "by leaf: its share of rows, and means of scores"
    trees: Annotated[Array, (Axis.VERSIONS, Axis.TREE_NODES, Axis.NODE_NUMBERS)]

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether a tree is learned, described and evaluated."""
        return study.values_leaves

    def fault_in(self, answer: LeafValues, study: Study, n_rows: int) -> str | None:
        """Check shares of rows in every leaf, and that means have a variance."""
        n_leaves, is_by_fold = int((self.trees[-1][:, 0] == LEAF).sum()), len(self.trees) > 1
        numbers = (answer.counts, answer.rows, answer.degrees_of_freedom, answer.variances)
        if any(len(part) != n_leaves for part in (*numbers, answer.shares, answer.means)):
            return "the leaves are not those of the tree"
        if (answer.shares < 0).any() or answer.shares.sum() > 1 + CELL_TOLERANCE:
            return "a share of rows is outside 0 to 1"
        if is_by_fold and (abs(answer.means[:, _ALIKE] - 0.5) > 0.5 + CELL_TOLERANCE).any():
            return "a share of rows is outside 0 to 1"
        if min(part.min() for part in numbers) < 0:
            return "a number of rows or a variance is negative"
        split = RowSplit.TRAINING if is_by_fold else RowSplit.EVALUATION
        if answer.rows.sum(axis=0).max() > most_rows(study, split, n_rows):
            return "values of more rows than it has"
        if (answer.degrees_of_freedom > np.maximum(answer.rows - 1, 0)).any():
            return "more degrees of freedom than rows"
        return None
