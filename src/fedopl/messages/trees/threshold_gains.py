"""The gains of a tree from other thresholds, close to those it was found with on the grid."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Annotated, Self

import numpy as np

from fedopl.messages.combining import PerClient
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.policies.trees.grid import grid_from, thresholds_of
from fedopl.policies.trees.nodes import as_arrays, branches_of, from_array
from fedopl.policies.trees.second_look import SecondLook, check_look
from fedopl.study.study import Study


@message
class ThresholdGains(Message, code=86):
    """By question and narrow bin: Σ w·(Γ̂(yes) − Γ̂(no)) / Σ w over training rows that reach it.

    Rows are those that the question's version of the tree is learned from. Bins with few rows are
    merged, and their sum is divided between them; if few rows would still be left, there are zeros.
    They are kept by client, like the cells.
    """

    gains: Annotated[Array, (Axis.QUESTIONS, Axis.NEAR_BINS), PerClient]


@message
class SumNearThresholds(Query[ThresholdGains], code=139, asked=Asked.EACH):
    """Ask what the tree that was found on a grid would gain from thresholds close to its own."""

    title = "Sums close to thresholds"
    content = "by question: differences of scores between thresholds"
    trees: Annotated[Array, (Axis.VERSIONS, Axis.TREE_NODES, Axis.NODE_NUMBERS)]
    n_cuts: Annotated[Array, (Axis.COLUMNS,)]  # of the grid, as in `SumCells`
    cuts: Annotated[Array, (Axis.THRESHOLDS,)]
    near: Annotated[Array, (Axis.QUESTIONS, Axis.NEAR_CUTS)]

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether a tree is searched for on a grid whose thresholds may move.

        Within a budget there are many trees, which keep the grid's thresholds.
        """
        may_move = study.policy.on_grid and bool(study.tree.refined(study.columns))
        return may_move and study.budget is None

    def fault_in(self, answer: ThresholdGains, _study: Study, _n_rows: int) -> str | None:
        """Check that only thresholds that may move have gains."""
        if len(answer.gains) != len(self.near):
            return "the gains are not those of the questions"
        if answer.gains[self.near[:, 0] == self.near[:, -1]].any():
            return "a threshold that stays gains something"
        return None

    @classmethod
    def of(cls, looks: Sequence[SecondLook]) -> Self:
        """The query about the second look at each version of the tree."""
        n_cuts, cuts = thresholds_of(looks[0].grid)
        trees = as_arrays([look.root for look in looks])
        near = np.concatenate([look.near for look in looks])
        return cls(trees=trees, n_cuts=n_cuts, cuts=cuts, near=near)

    def looks(self, study: Study) -> list[SecondLook]:
        """The second looks; a ValueError unless an honest server of this study could ask so."""
        grid = grid_from(study.tree, study.columns, self.n_cuts, self.cuts)
        roots = [from_array(own, study.columns, range(study.n_actions)) for own in self.trees]
        ends = [*accumulate(len(branches_of(root)) for root in roots)]
        near = np.split(np.asarray(self.near), ends[:-1])
        found = [SecondLook(root, grid, own) for root, own in zip(roots, near, strict=True)]
        for look in found:
            check_look(look, study.tree, study.columns)
        return found
