"""What a tree is worth to one client, from its sums over a grid's cells."""

import math

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.base.errors import OptionError
from fedopl.policies.trees.grid import Grid
from fedopl.policies.trees.nodes import Branch, Leaf, Node
from fedopl.policies.trees.search import FIRST_ACTION, WEIGHT


def tree_value(cells: FloatArray, grid: Grid, n_actions: int, root: Node) -> float:
    """The mean score of what a tree of depth two at most decides, from one client's cells.

    Rows without a score for it are left out, as they are where held-out rows are valued.
    """
    total = rests_on = 0.0
    for leaf, numbers in _leaves(cells, grid, root):
        total += numbers[FIRST_ACTION + leaf.action]
        known = FIRST_ACTION + n_actions + leaf.action
        rests_on += numbers[known if known < len(numbers) else WEIGHT]
    return total / rests_on if rests_on > 0 else math.nan


def _leaves(cells: FloatArray, grid: Grid, root: Node) -> list[tuple[Leaf, FloatArray]]:
    """Every leaf with the sums over its rows, (n_numbers,)."""
    if isinstance(root, Leaf):
        return [(root, grid.line(cells, 0).sum(axis=0))]
    found: list[tuple[Leaf, FloatArray]] = []
    for yes, below in ((True, root.yes), (False, root.no)):
        first = _says(grid, root, yes=yes)
        if isinstance(below, Leaf):
            found.append((below, grid.line(cells, root.column)[first].sum(axis=0)))
            continue
        table = grid.table(cells, root.column, below.column)[first].sum(axis=0)
        for answer, leaf in ((True, below.yes), (False, below.no)):
            if not isinstance(leaf, Leaf):
                raise OptionError("tree: cells of two columns tell values of depth two at most")
            found.append((leaf, table[_says(grid, below, yes=answer)].sum(axis=0)))
    return found


def _says(grid: Grid, split: Branch, *, yes: bool) -> BoolArray:  # (n_bins,)
    """The bins of those who give this answer."""
    places = np.arange(grid.n_bins[split.column])
    cut = grid.cuts[split.column].index(split.cut)
    said = places == cut if grid.is_level[split.column] else places <= cut
    return said if yes else ~said
