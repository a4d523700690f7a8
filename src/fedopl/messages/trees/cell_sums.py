"""Sums of scores over the cells of a tree's grid, for every node that is still open."""

from itertools import accumulate, pairwise
from typing import Annotated

import numpy as np

from fedopl.messages.combining import PerClient
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.plausibility import CELL_TOLERANCE
from fedopl.policies.trees.grid import Grid, grid_from
from fedopl.policies.trees.growing import n_levels
from fedopl.policies.trees.nodes import LEAF
from fedopl.policies.trees.search import FIRST_ACTION, ROWS, WEIGHT
from fedopl.study.study import Study


@message
class CellSums(Message, code=127):
    """By cell: rows, their share of all weight, and by action the share of the mean score.

    All rows, and all weight, are those that a version of the tree is learned from. If not every row
    has every score, the shares of weight that have one follow. In a cautious study the last are
    doubts, by action: Σ w²/ê(x; a) over the square of all weight. Cells are kept by client, so that
    the tree of any mixture can be searched for again.
    """

    cells: Annotated[Array, (Axis.OPEN_NODES, Axis.CELLS, Axis.CELL_NUMBERS), PerClient]


def fewest_numbers(study: Study) -> int:
    """How many numbers a cell has, if every row has every score."""
    return FIRST_ACTION + study.n_actions * (1 + study.doubts_leaves)


@message
class SumCells(Query[CellSums], code=138, asked=Asked.EACH):
    """Ask for sums of scores over every two columns' bins, separately for each open node.

    If values are cross-fitted, a tree is grown without each fold, and one of all rows. The cells of
    a version's open nodes are of the rows that it is learned from.
    """

    title = "Sums over a grid"
    content = "sums of scores over the cells of every two columns"
    partitions: Annotated[Array, (Axis.VERSIONS, Axis.TREE_NODES, Axis.NODE_NUMBERS)]
    n_cuts: Annotated[Array, (Axis.COLUMNS,)]  # how many of the thresholds are each column's
    cuts: Annotated[Array, (Axis.THRESHOLDS,)]

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether a tree is searched for on a grid."""
        return study.policy.on_grid

    @classmethod
    def most(cls, study: Study) -> int:
        """One for each level of the tree."""
        return n_levels(study.tree.depth)

    def fault_in(self, answer: CellSums, study: Study, n_rows: int) -> str | None:
        """Check that every two columns divide the same rows, which are no more than there are.

        Scaled shares would gain weight, so the shares of a version's nodes may not exceed one.
        """
        grid = self.grid(study)
        n_nodes, n_cells, n_numbers = answer.cells.shape
        if (n_nodes, n_cells) != (sum(self.n_open), grid.n_cells):
            return "the cells are not those of the grid"
        if n_numbers - fewest_numbers(study) not in (0, study.n_actions):
            return "the numbers of a cell are not those of the actions"
        counted = answer.cells[..., [ROWS, WEIGHT]]
        if (counted < 0).any():
            return "a count is negative"
        if study.doubts_leaves and (answer.cells[..., -study.n_actions :] < 0).any():
            return "a doubt is negative"
        totals = np.stack([counted[:, table].sum(axis=1) for table in grid.tables.values()])
        spread = np.ptp(totals, axis=0)  # (n_nodes, 2): all tables divide the same rows
        if (spread > CELL_TOLERANCE * (1 + totals.max(axis=0))).any():
            return "two columns divide different rows"
        for nodes in self.nodes:
            rows, weight = totals[0, nodes].sum(axis=0)
            if rows > n_rows * (1 + CELL_TOLERANCE) or weight > 1 + CELL_TOLERANCE:
                return "counts more rows than there are"
        return None

    @property
    def n_open(self) -> list[int]:
        """How many nodes of each version are open; none, where a version is finished."""
        return [1 + int(own[own[:, 0] == LEAF, 1].max()) for own in self.partitions]

    @property
    def nodes(self) -> list[slice]:
        """The positions of each version's open nodes in an answer."""
        return [slice(*ends) for ends in pairwise([0, *accumulate(self.n_open)])]

    def grid(self, study: Study) -> Grid:
        """The grid of these thresholds; a ValueError unless the study allows it."""
        return grid_from(study.tree, study.columns, self.n_cuts, self.cuts)
