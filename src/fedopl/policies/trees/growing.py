"""Grows trees of any depth: exact up to depth two; deeper trees are searched two levels ahead.

At every node the best tree of depth two is found. Its first question is kept, and both answers are
searched on the next level. On the last level the whole depth-two tree is kept. So every tree is at
least as good as the exact one of depth two, but beyond that depth it need not be the best of all.
"""

from collections.abc import Callable, Sequence

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.policies.trees.grid import Grid, Rules
from fedopl.policies.trees.nodes import Branch, Leaf, Node
from fedopl.policies.trees.search import best_tree
from fedopl.policies.trees.tree_plan import LOOK_AHEAD

# In a partition, a leaf with nothing left to search; open leaves are counted from zero.
DONE = -1
EVERYBODY = Leaf(0)
ALL_DONE = Leaf(DONE)
NO_TREE = (
    "no tree keeps to the rules: lower tree.minimum_leaf, or let tree.allowed leave an action to "
    "everybody that a leaf may hold"
)

AnswerOnPath = tuple[int, float, bool]  # column, cut, whether yes
Path = tuple[AnswerOnPath, ...]
CellsOf = Callable[[Node], list[FloatArray] | None]


class GrowingTree:
    """A tree that is searched for level by level, and its value so far."""

    def __init__(self, grid: Grid, depth: int, rules: Rules) -> None:
        self.value = 0.0
        self._grid, self._depth, self._rules = grid, depth, rules
        self._decided: dict[Path, Node] = {}
        self._questions: dict[Path, Branch] = {}
        self._ahead: dict[Path, Node] = {}
        self._opened: list[Path] = [()]

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing left to search."""
        return not self._opened

    @property
    def partition(self) -> Node:
        """A tree whose leaves say which open node a row belongs to, or DONE."""
        if self.is_finished:
            return ALL_DONE
        opened = {path: n for n, path in enumerate(self._opened)}
        return self._built((), opened)

    @property
    def root(self) -> Node:
        """The finished tree."""
        return simplified(self._built((), {}))

    def _built(self, path: Path, opened: dict[Path, int]) -> Node:
        """The tree below a path: a partition if there are open nodes, else the finished tree."""
        if path in opened:
            return Leaf(opened[path])
        if path in self._decided:
            return Leaf(DONE) if opened else self._decided[path]
        asked = self._questions[path]
        yes, no = (
            self._built((*path, (asked.column, asked.cut, answer)), opened)
            for answer in (True, False)
        )
        return Branch(asked.column, asked.cut, yes, no)

    def grow(self, sums: Sequence[FloatArray] | None) -> None:
        """Search one level further in the sums of every open node.

        Without sums, the tree ends with the best tree seen from the level above; so does a node of
        which no row is reported.
        """
        if sums is None:
            self._decided |= {path: self._ahead[path] for path in self._opened}
            self._opened = []
            return
        below: list[Path] = []
        for path, cells in zip(self._opened, sums, strict=True):
            remaining = self._depth - len(path)
            own = self._rules
            for column, cut, yes in path:
                place = self._grid.cuts[column].index(cut)
                own = own.within(self._grid, column, place, yes=yes)
            found = best_tree(cells, self._grid, min(remaining, LOOK_AHEAD), own)
            if path and not np.isfinite(found.value):  # so few rows that no client reports them
                self._decided[path] = self._ahead[path]
                continue
            if remaining <= LOOK_AHEAD or isinstance(found.node, Leaf):
                self._decided[path] = found.node
                self.value = self.value + found.value
                continue
            question = found.node
            self._questions[path] = question
            self.value = self.value - self._rules.split_cost
            for yes, node in ((True, question.yes), (False, question.no)):
                below.append((*path, (question.column, question.cut, yes)))
                self._ahead[below[-1]] = node
        self._opened = below


def grow_tree(grid: Grid, depth: int, rules: Rules, cells_of: CellsOf) -> tuple[Node, float]:
    """The tree and its value.

    `cells_of` is called once for each level, with the partition of the rows. It returns the sums of
    every open node, or none, where the tree has to end.
    """
    tree = GrowingTree(grid, depth, rules)
    while not tree.is_finished:
        tree.grow(cells_of(tree.partition))
    return tree.root, tree.value


def simplified(node: Node) -> Node:
    """A tree with the same decisions, without questions that change no decision."""
    if isinstance(node, Leaf):
        return node
    yes, no = simplified(node.yes), simplified(node.no)
    return yes if yes == no else Branch(node.column, node.cut, yes, no)


def n_levels(depth: int) -> int:
    """The largest number of times that cells are asked for."""
    return max(1, depth - LOOK_AHEAD + 1)
