"""The gains of a tree from other thresholds, close to those it was found with on the grid."""

from typing import Annotated

import numpy as np

from fedopl.messages.combining import PerClient
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.policies.trees.grid_rules import grid_from
from fedopl.policies.trees.nodes import from_array
from fedopl.policies.trees.second_look import SecondLook, check_look
from fedopl.study.study import Study


@message
class ThresholdGains(Message, code=86):
    """By question and narrow bin: Σ w·(Γ̂(yes) − Γ̂(no)) / Σ w over training rows that reach it.

    Bins with few rows are merged, and their sum is divided between them; if few rows would still be
    left, there are zeros. They are kept by client, like the cells.
    """

    gains: Annotated[Array, (Axis.QUESTIONS, Axis.NEAR_BINS), PerClient]


@message
class SumNearThresholds(Query[ThresholdGains], code=24, asked=Asked.EACH):
    """Ask what the tree that was found on a grid would gain from thresholds close to its own."""

    title = "Sums close to thresholds"
    content = "by question: differences of scores between thresholds"
    tree: Annotated[Array, (Axis.TREE_NODES, Axis.NODE_NUMBERS)]
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

    def look(self, study: Study) -> SecondLook:
        """The second look; a ValueError unless an honest server of this study could ask for it."""
        grid = grid_from(study.tree, study.columns, self.n_cuts, self.cuts)
        root = from_array(self.tree, study.columns, range(study.n_actions))
        found = SecondLook(root, grid, np.asarray(self.near))
        check_look(found, study.tree, study.columns)
        return found
