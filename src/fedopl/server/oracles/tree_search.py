"""Searches for a tree, in the mixture of the clients' sums over the cells of a grid."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.trees.cell_sums import CellSums, SumCells
from fedopl.messages.trees.threshold_gains import SumNearThresholds
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.grid import Grid
from fedopl.policies.trees.grid_rules import thresholds_of
from fedopl.policies.trees.growing import EVERYBODY
from fedopl.policies.trees.nodes import Branch, Node, as_array, leaves_of
from fedopl.policies.trees.second_look import SecondLook, look_close
from fedopl.results.sums.tree_statistics import (
    LeafDoubts,
    ThresholdsMoved,
    TreeStatistics,
    grown_tree,
    mixed_cells,
)
from fedopl.server.aggregate.grid_agreement import Counts, agree_on_grid
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.study.mixture import Weights, renormalised


def asking_for_cells(grid: Grid, partition: Node = EVERYBODY) -> SumCells:
    """The query for sums over this grid's cells, in every open node of a partition."""
    n_cuts, cuts = thresholds_of(grid)
    return SumCells(partition=as_array(partition), n_cuts=n_cuts, cuts=cuts)


@dataclass(eq=False)
class _Asking:
    """Asks clients for sums over cells, level by level; keeps those of the first level."""

    setting: Setting
    conversation: Conversation
    grid: Grid
    first: dict[str, FloatArray] = field(default_factory=dict)
    first_doubts: LeafDoubts | None = None

    def __call__(self, partition: Node) -> list[FloatArray] | None:
        """The cells of every open node in the mixture; None if too few report a lower level."""
        setting, n_open = self.setting, 1 + max(leaf.action for leaf in leaves_of(partition))
        if partition == EVERYBODY and setting.cells is not None:
            answers = setting.cells
        else:
            query = asking_for_cells(self.grid, partition)
            answers = self.conversation.each(query, setting.weights)
        answers = self.conversation.drop(
            answers,
            lambda name, _: None if name in setting.weights else "its scores were not summed",
        )
        if self.first and not self.conversation.has_quorum(answers):
            return None
        usable = self.conversation.require_quorum(answers)
        weights = renormalised(self.setting.weights, usable.keys())
        return [self._mixed(usable, weights, node) for node in range(n_open)]

    def _mixed(self, answers: Mapping[str, CellSums], weights: Weights, node: int) -> FloatArray:
        """The cells of one node in the mixture, followed by the numbers that caution needs."""
        study = self.setting.study
        cells = {name: answer.cells[node] for name, answer in answers.items()}
        doubts = None
        if study.doubts_leaves:
            split = {name: np.split(own, [-study.n_actions], axis=1) for name, own in cells.items()}
            cells = {name: own for name, (own, _) in split.items()}
            doubts = doubts_of(self.setting, {name: own for name, (_, own) in split.items()})
        # Trees for other mixtures are later searched for in the sums of the first level.
        if not self.first:
            self.first, self.first_doubts = cells, doubts
        mixed = mixed_cells(cells, weights)
        return mixed if doubts is None else np.hstack([mixed, doubts.squared(weights)])


def doubts_of(setting: Setting, cells: dict[str, FloatArray]) -> LeafDoubts:
    """How uncertain the sums over cells are, from clients' answers and the variance of outcomes."""
    taken = setting.statistics.taken
    assert taken is not None  # noqa: S101  (without it, a cautious study was refused)
    return LeafDoubts(caution=setting.study.caution, cells=cells, taken=taken)


@dataclass(frozen=True, eq=False)
class Searched:
    """The tree for the study's mixture, and all that clients reported for it."""

    policy: TreePolicy
    statistics: TreeStatistics
    counts: Counts


def learn(setting: Setting, conversation: Conversation) -> Searched:
    """Agree on thresholds, then grow the tree, with one exchange for each level."""
    study = setting.study
    grid, counts = agree_on_grid(setting, conversation)
    asking = _Asking(setting, conversation, grid)
    policy = grown_tree(study, grid, asking)
    found = TreeStatistics(
        study=study,
        grid=grid,
        cells=asking.first,
        doubts=asking.first_doubts,
    )
    return Searched(policy, found, counts)


def look_twice(
    searched: Searched, setting: Setting, conversation: Conversation
) -> tuple[TreePolicy, TreeStatistics]:
    """Move the tree's thresholds to better places between those of the grid, with one exchange.

    The tree stays as it is if the study does not ask for this, if no threshold may move, or if less
    than a quorum reports.
    """
    policy, found = searched.policy, searched.statistics
    if not SumNearThresholds.needed(setting.study):
        return policy, found
    look = found.roomy(_close_to(policy.root, found, searched.counts))
    if not look.moving:
        return policy, found
    n_cuts, cuts = thresholds_of(look.grid)
    query = SumNearThresholds(tree=as_array(look.root), n_cuts=n_cuts, cuts=cuts, near=look.near)
    answers = conversation.each(query, found.clients)
    if not conversation.has_quorum(answers):
        return policy, found
    gains = {name: answer.gains for name, answer in answers.items()}
    found = replace(found, closer=ThresholdsMoved(look, gains))
    return found.solve(setting.weights), found


def _close_to(root: Node, found: TreeStatistics, counts: Counts) -> SecondLook:
    """Thresholds near those of every question that may move."""
    study = found.study
    refined = {column.name for column in study.tree.refined(study.columns)}

    def beside(branch: Branch) -> list[float]:
        name = study.columns[branch.column].name
        return counts.beside(name, branch, found.grid) if name in refined else []

    return look_close(root, found.grid, beside)
