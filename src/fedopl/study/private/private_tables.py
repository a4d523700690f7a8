"""Tables of sums for finding a tree with differential privacy.

A coarse table of every two columns shows which questions are worth asking. Then narrow bins near
each threshold show where the threshold is best. Bins are computed from public ranges, so no row's
value decides them.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.policies.tree_columns import NumberColumn
from fedopl.policies.trees.grid import Grid
from fedopl.policies.trees.grid_rules import agreed_grid
from fedopl.policies.trees.nodes import Branch, Node
from fedopl.policies.trees.second_look import BINS_TO_A_SIDE, SecondLook, look_close

if TYPE_CHECKING:
    from fedopl.study.study import Study

# The number of bins of a number, about equally full. With more, noise would dominate the tables.
COARSE_BINS = 4
# The two bins beside a threshold reach half a unit to either side, about half a deviation.
_NEAR = 0.5


class TreeTables:
    """The tables released for a tree, and the position of rows in them."""

    def __init__(
        self, study: "Study", likely: Mapping[str, FloatArray], units: Sequence[float]
    ) -> None:
        self._study, self._units = study, units
        self._likely = likely  # values that ranges make likely, from the least on

    @cached_property
    def grid(self) -> Grid:
        """The coarse grid; thresholds that the study agreed on are kept."""
        plan = self._study.tree
        n_bins = min(COARSE_BINS, plan.bins)
        shares = np.arange(1, n_bins) / n_bins
        proposed = {
            column.name: _cuts(self._likely[column.name], shares)
            for column in plan.uncut(self._study.columns)
        }
        return agreed_grid(plan, self._study.columns, proposed)

    @cached_property
    def released(self) -> list[tuple[int, int]]:
        """The released tables: of every two columns, or of each one for a tree of one question."""
        asked = [column for column, n_bins in enumerate(self.grid.n_bins) if n_bins > 1]
        if self._study.tree.depth == 1 or len(asked) < 2:
            return [(column, column) for column in asked or [0]]
        return list(combinations(asked, 2))

    @cached_property
    def places(self) -> IntArray:  # (n_released,)
        """The positions of released cells among all cells of the grid."""
        tables = self.grid.tables
        return np.concatenate([np.arange(tables[t].start, tables[t].stop) for t in self.released])

    @property
    def cells_move(self) -> float:
        """How far a row moves all tables, if it moves one by 1: it is in one cell of each."""
        return math.sqrt(len(self.released))

    @property
    def gains_move(self) -> float:
        """How far a row moves the bins near thresholds: it meets one question per level."""
        return math.sqrt(self._study.tree.depth)

    @property
    def may_refine(self) -> bool:
        """Whether any threshold may move."""
        return any(self._moves(column) for column in range(len(self._study.columns)))

    def _moves(self, column: int) -> bool:
        columns = self._study.columns
        own = columns[column]
        # For a flag, all thresholds between its two values are equivalent.
        return own in self._study.tree.refined(columns) and not _is_flag(self._likely[own.name])

    def look(self, root: Node) -> SecondLook:
        """A second look at a tree, with thresholds near those of each question that may move."""

        def beside(branch: Branch) -> list[float]:
            column = self._study.columns[branch.column]
            if not isinstance(column, NumberColumn) or not self._moves(branch.column):
                return []
            steps = np.arange(1 - BINS_TO_A_SIDE, BINS_TO_A_SIDE)
            width = self.reach(branch) / BINS_TO_A_SIDE
            return [branch.cut + float(step) * width for step in steps]

        return look_close(root, self.grid, beside)

    def reach(self, branch: Branch) -> float:
        """How far from a question's threshold rows still count for it."""
        column = self._study.columns[branch.column]
        if not isinstance(column, NumberColumn):
            return 0.0
        return _NEAR * self._units[column.feature]


def _cuts(likely: FloatArray, shares: FloatArray) -> list[float]:
    """Thresholds with about equally many of these values between them."""
    if _is_flag(likely):
        return [float(likely[0] + likely[-1]) / 2]
    return [float(cut) for cut in np.quantile(likely, shares)]


def _is_flag(likely: FloatArray) -> bool:
    """Whether the values are only the two ends of a range, and its middle."""
    return len(np.unique(likely)) <= 3
