"""Searches for trees, in the mixture of the clients' sums over the cells of a grid.

If values are cross-fitted, trees are searched for without each fold, and at last one of all rows.
They are versions of one tree: clients are asked about all of them at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.trees.cell_sums import CellSums, SumCells
from fedopl.messages.trees.threshold_gains import SumNearThresholds
from fedopl.policies.trees.grid import Grid, thresholds_of
from fedopl.policies.trees.growing import EVERYBODY
from fedopl.policies.trees.nodes import Branch, Node, as_arrays
from fedopl.policies.trees.second_look import SecondLook, look_close
from fedopl.results.sums.tree_statistics import (
    LeafDoubts,
    Searched,
    ThresholdsMoved,
    TreeStatistics,
    grown_trees,
)
from fedopl.server.aggregate.grid_agreement import Counts, agree_on_grid
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.study.mixture import Weights
from fedopl.study.study import Study


def asking_for_cells(
    study: Study, grid: Grid, partitions: Sequence[Node] | None = None
) -> SumCells:
    """The query for sums over this grid's cells, in the open nodes of each version's partition.

    Without partitions, it is for all rows that each version is learned from.
    """
    n_cuts, cuts = thresholds_of(grid)
    asked = partitions or [EVERYBODY] * len(study.left_out)
    return SumCells(partitions=as_arrays(asked), n_cuts=n_cuts, cuts=cuts)


@dataclass(eq=False)
class _Asking:
    """Asks clients for sums over cells, level by level; keeps those of the first level."""

    setting: Setting
    conversation: Conversation
    grid: Grid
    first: list[TreeStatistics] = field(default_factory=list)  # of each version

    def __call__(self, partitions: Sequence[Node]) -> list[list[FloatArray]] | None:
        """The cells of all open nodes in the mixture; None if too few report a lower level."""
        setting = self.setting
        query = asking_for_cells(setting.study, self.grid, partitions)
        if setting.cells is not None and not self.first:
            answers = setting.cells
        else:
            answers = self.conversation.each(query, setting.weights)
        answers = self.conversation.drop(
            answers,
            lambda name, _: None if name in setting.weights else "its scores were not summed",
        )
        if self.first and not self.conversation.has_quorum(answers):
            return None
        usable = self.conversation.require_quorum(answers)
        told = [
            [self._told(usable, node, without) for node in range(nodes.start, nodes.stop)]
            for nodes, without in zip(query.nodes, setting.study.left_out, strict=True)
        ]
        # Trees for other mixtures are later searched for in the sums of the first level.
        self.first = self.first or [root for (root,) in told]
        return [[node.mixed(setting.weights) for node in nodes] for nodes in told]

    def _told(
        self, answers: Mapping[str, CellSums], node: int, without: int | None
    ) -> TreeStatistics:
        """What clients reported for one node of the version without a fold, or of all rows."""
        study = self.setting.study
        # A client with all of its rows in one fold has no sums by fold, and is in no version.
        in_folds = [name for name in answers if name in (self.setting.by_fold or {})]
        names = answers if without is None or not in_folds else in_folds
        cells = {name: answers[name].cells[node] for name in names}
        doubts = None
        if study.doubts_leaves:
            split = {name: np.split(own, [-study.n_actions], axis=1) for name, own in cells.items()}
            cells = {name: own for name, (own, _) in split.items()}
            doubts = self._doubts({name: own for name, (_, own) in split.items()}, without)
        return TreeStatistics(study=study, grid=self.grid, cells=cells, doubts=doubts)

    def _doubts(self, cells: dict[str, FloatArray], without: int | None) -> LeafDoubts:
        """How uncertain the sums are, from clients' answers and the variance of outcomes."""
        study, taken = self.setting.study, self.setting.statistics.taken
        assert taken is not None  # noqa: S101  (without it, a cautious study was refused)
        if without is not None:
            taken = taken.of_folds({*range(study.nuisances.folds)} - {without})
        return LeafDoubts(caution=study.caution, cells=cells, taken=taken)


def learn(setting: Setting, conversation: Conversation) -> tuple[list[Searched], Counts]:
    """Agree on thresholds, then grow all versions of the tree, with one exchange for each level.

    The last version is the one of all rows.
    """
    study = setting.study
    grid, counts = agree_on_grid(setting, conversation)
    asking = _Asking(setting, conversation, grid)
    policies = grown_trees(study, grid, len(study.left_out), asking)
    versions = [Searched(*own) for own in zip(policies, asking.first, strict=True)]
    return versions, counts


def look_twice(
    versions: Sequence[Searched], counts: Counts, setting: Setting, conversation: Conversation
) -> Sequence[Searched]:
    """Move the trees' thresholds to better places between those of the grid, with one exchange.

    Trees stay as they are if the study does not ask for this, if no threshold may move, or if less
    than a quorum reports.
    """
    if not SumNearThresholds.needed(setting.study):
        return versions
    looks = [own.statistics.roomy(_close_to(own, counts)) for own in versions]
    if not any(look.moving for look in looks):
        return versions
    answers = conversation.each(SumNearThresholds.of(looks), versions[-1].statistics.clients)
    if not conversation.has_quorum(answers):
        return versions
    mixtures = map(setting.weights_without, setting.study.left_out)
    ends = np.cumsum([len(look.questions) for look in looks])[:-1]
    gains = {name: np.split(answer.gains, ends) for name, answer in answers.items()}
    return [
        _moved(own, look, {name: told[place] for name, told in gains.items()}, weights)
        for place, (own, look, weights) in enumerate(zip(versions, looks, mixtures, strict=True))
    ]


def _moved(
    searched: Searched, look: SecondLook, gains: dict[str, FloatArray], weights: Weights
) -> Searched:
    """The tree with the thresholds that gain most at the clients that it is learned from."""
    found = searched.statistics
    closer = ThresholdsMoved(look, gains).restricted(found.cells)
    if not look.moving or closer is None:
        return searched
    found = replace(found, closer=closer)
    return Searched(found.solve(weights), found)


def _close_to(searched: Searched, counts: Counts) -> SecondLook:
    """Thresholds near those of every question that may move."""
    found = searched.statistics
    study = found.study
    refined = {column.name for column in study.tree.refined(study.columns)}

    def beside(branch: Branch) -> list[float]:
        name = study.columns[branch.column].name
        return counts.beside(name, branch, found.grid) if name in refined else []

    return look_close(searched.policy.root, found.grid, beside)
