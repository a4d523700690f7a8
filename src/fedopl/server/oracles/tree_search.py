"""Trees: searched for in the mixture of the clients' sums over a grid's cells."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import FederationError
from fedopl.messages.faults import fault_in_cell_sums
from fedopl.messages.vocabulary import CellSums, SumCells
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.grid import Grid
from fedopl.policies.trees.grid_rules import rules_of, thresholds_of
from fedopl.policies.trees.growing import EVERYBODY, NO_TREE, CellsOf, grow_tree
from fedopl.policies.trees.nodes import Leaf, Node, as_array
from fedopl.policies.trees.search import FIRST_ACTION, ROWS, WEIGHT, Cells
from fedopl.policies.trees.tree_plan import LOOK_AHEAD
from fedopl.server.aggregate.aggregation import plain_sum, weighted_sum
from fedopl.server.aggregate.grid_agreement import agree_on_grid
from fedopl.server.exchange.conversation import Conversation, Question
from fedopl.server.oracles.setting import Setting
from fedopl.study.mixture import Weights, renormalised
from fedopl.study.study import Study


@dataclass(frozen=True, eq=False, kw_only=True)
class TreeStatistics:
    """What clients told of the whole grid: enough to find the tree for any mixture again."""

    study: Study
    grid: Grid
    cells: dict[str, FloatArray]  # by client, (n_cells, n_numbers)
    lost: dict[str, float]  # by client: how far hiding cells can move the value of any tree

    @property
    def is_exact(self) -> bool:
        """Whether the tree is the best of all on the grid, and not just two levels ahead."""
        return self.study.tree.depth <= LOOK_AHEAD

    def solve(self, weights: Weights) -> TreePolicy:
        """The best tree for these weights; nobody is asked anything."""
        shares = renormalised(weights, self.cells.keys())
        return _grown(self.study, self.grid, lambda _: [mixed_cells(self.cells, shares)])

    def possible_loss(self, weights: Weights) -> float:
        """How far hiding small cells can move the value of any tree in the mixture."""
        shares = renormalised(weights, self.lost.keys())
        return sum(shares[name] * self.lost[name] for name in sorted(self.lost))


def asking_for_cells(grid: Grid, partition: Node = EVERYBODY) -> Question:
    """Ask for the sums over this grid's cells, in every open node of a partition."""
    n_cuts, cuts = thresholds_of(grid)
    fields = {"partition": as_array(partition), "n_cuts": n_cuts, "cuts": cuts}
    return Question(SumCells, CellSums, fields)


@dataclass(eq=False)
class _Asking:
    """Cells as clients tell them, level by level; what they tell first is kept."""

    setting: Setting
    conversation: Conversation
    grid: Grid
    first: dict[str, FloatArray] = field(default_factory=dict)
    lost: dict[str, float] = field(default_factory=dict)

    def __call__(self, partition: Node) -> list[Cells] | None:
        """The mixture's cells of every open node; nothing if too few tell them below the first."""
        setting, n_open = self.setting, 1 + _last_open(partition)
        if partition == EVERYBODY and setting.cells is not None:
            answers = setting.cells
        else:
            question = asking_for_cells(self.grid, partition)
            (answers,) = self.conversation.ask_together(setting.weights, question)
        answers = self.conversation.drop_by_name(
            answers,
            lambda name, answer: (
                fault_in_cell_sums(
                    answer, self.grid, n_open, setting.rows[name], setting.study.n_actions
                )
                if name in setting.weights
                else "its scores were not summed"
            ),
        )
        if self.first and not self.conversation.has_quorum(answers):
            return None
        usable = self.conversation.require_quorum(answers)
        weights = renormalised(self.setting.weights, usable.keys())
        if not self.first:
            self.first = {name: answer.cells[0] for name, answer in usable.items()}
        for name, answer in usable.items():
            self.lost[name] = max(self.lost.get(name, 0.0), float(answer.lost.sum()))
        return [
            mixed_cells({name: answer.cells[node] for name, answer in usable.items()}, weights)
            for node in range(n_open)
        ]


def learn(setting: Setting, conversation: Conversation) -> tuple[TreePolicy, TreeStatistics]:
    """Agree on thresholds, then grow the tree, with one exchange for each level."""
    study = setting.study
    grid = agree_on_grid(setting, conversation)
    asking = _Asking(setting, conversation, grid)
    policy = _grown(study, grid, asking)
    found = TreeStatistics(study=study, grid=grid, cells=asking.first, lost=asking.lost)
    return policy, found


def mixed_cells(cells: Mapping[str, FloatArray], weights: Weights) -> Cells:
    """The mixture of the clients' sums; rows are counted as they are."""
    widest = max(numbers.shape[1] for numbers in cells.values())
    complete = {name: _widened(numbers, widest) for name, numbers in cells.items()}
    mixed = weighted_sum(weights, complete)
    mixed[:, ROWS] = plain_sum({name: numbers[:, ROWS] for name, numbers in complete.items()})
    return Cells(mixed)


def _widened(numbers: FloatArray, width: int) -> FloatArray:
    """With the weight that each action's sum rests on, which is all of it where none is told."""
    if numbers.shape[1] == width:
        return numbers
    n_actions = numbers.shape[1] - FIRST_ACTION
    known = np.repeat(numbers[:, WEIGHT, None], n_actions, axis=1)
    return np.concatenate([numbers, known], axis=1)


def _grown(study: Study, grid: Grid, cells_of: CellsOf) -> TreePolicy:
    rules = rules_of(study.tree, study.columns, grid, study.actions)
    root, value = grow_tree(grid, study.tree.depth, rules, cells_of)
    if not np.isfinite(value):
        raise FederationError(NO_TREE)
    return TreePolicy(root, study.actions, study.features, study.encoding)


def _last_open(partition: Node) -> int:
    if isinstance(partition, Leaf):
        return partition.action
    return max(_last_open(partition.yes), _last_open(partition.no))
