"""A second search for a tree's thresholds; each may move within the two bins beside it.

The questions and actions stay. For one question, take the rows that reach it with a value close to
its threshold t. Those below t get what the yes side decides for them, those above what the no side
decides. Sums of Γ(yes) − Γ(no) over narrow bins show what another threshold would gain. Rows close
to the threshold of an earlier question may take another path, so they count only for that question.
So every row counts for at most one threshold.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.policies.tree_columns import Column
from fedopl.policies.trees.grid import Grid
from fedopl.policies.trees.nodes import Branch, Leaf, Node, branches_of, says_yes
from fedopl.policies.trees.tree_plan import TreePlan

# The number of narrow bins of each question; half of them lie on either side of its threshold.
NEAR_BINS = 32
BINS_TO_A_SIDE = NEAR_BINS // 2
# Gains this close, as a share of the absolute values of all gains, count as equal.
_ROUNDING = 1e-9

Turn = tuple[int, bool]  # the place of a question, and whether the answer is yes


@dataclass(frozen=True, eq=False)
class SecondLook:
    """A tree on a grid, and candidate thresholds near those of its questions.

    Questions are in the order of `branches_of`. A question whose candidates all equal its own
    threshold does not move.
    """

    root: Node
    grid: Grid
    near: FloatArray  # (n_questions, NEAR_BINS − 1)

    @cached_property
    def questions(self) -> list[tuple[Branch, tuple[Turn, ...]]]:
        """Every question, and the answers that lead to it."""
        found: list[tuple[Branch, tuple[Turn, ...]]] = []

        def add(node: Node, path: tuple[Turn, ...]) -> None:
            if isinstance(node, Branch):
                place = len(found)
                found.append((node, path))
                add(node.yes, (*path, (place, True)))
                add(node.no, (*path, (place, False)))

        add(self.root, ())
        return found

    @property
    def moving(self) -> list[int]:
        """The positions of questions whose thresholds may move."""
        return np.flatnonzero(self.near[:, 0] < self.near[:, -1]).tolist()

    def staying(self, places: Collection[int]) -> "SecondLook":
        """The same second look, in which these questions do not move."""
        near = self.near.copy()
        for place in places:
            near[place] = self.questions[place][0].cut
        return replace(self, near=near)

    def cramped(self, rows: FloatArray, minimum_leaf: int) -> set[int]:
        """Moving questions above leaves that could come to hold too few of these rows (n_cells,).

        A leaf is smallest if all thresholds on the path to it move toward it as far as they may.
        """
        found: set[int] = set()
        for path in self._ways_to_leaves():
            places = [place for place, _ in path]
            columns = [self.questions[place][0].column for place in places]
            table = self.grid.table(rows, columns[0], columns[-1])
            for axis, (place, yes) in enumerate(path if len(path) > 1 else path * 2):
                table = np.compress(self._left_over(place, yes=yes), table, axis)
            if table.sum() < minimum_leaf:
                found.update(places)
        return found & set(self.moving)

    def _ways_to_leaves(self) -> list[tuple[Turn, ...]]:
        """The answers that lead to each leaf; empty if the tree has no question."""
        found = []
        for place, (branch, path) in enumerate(self.questions):
            for yes, below in ((True, branch.yes), (False, branch.no)):
                if isinstance(below, Leaf):
                    found.append((*path, (place, yes)))
        return found

    def _left_over(self, place: int, *, yes: bool) -> BoolArray:  # (n_bins,)
        """The grid's bins that give this answer wherever a question's threshold moves."""
        branch, _ = self.questions[place]
        bins = np.arange(self.grid.n_bins[branch.column])
        cut = self.grid.cuts[branch.column].index(branch.cut)
        reach = int(place in self.moving)
        if self.grid.is_level[branch.column]:
            same: BoolArray = bins == cut
            return same if yes else ~same
        return np.asarray(bins <= cut - reach if yes else bins > cut + reach)

    def is_close(
        self, place: int, columns: Sequence[Column], contexts: FloatArray
    ) -> BoolArray:  # (n_rows,)
        """Whether rows lie in the two bins beside a question's threshold."""
        branch, _ = self.questions[place]
        low, high = window(self.grid, branch)
        values = columns[branch.column].values(contexts)
        return np.asarray((values > low) & (values <= high))

    def comes_to(
        self, place: int, columns: Sequence[Column], contexts: FloatArray
    ) -> BoolArray:  # (n_rows,)
        """Whether rows count for a question's threshold."""
        here = self.is_close(place, columns, contexts)
        for above, yes in self.questions[place][1]:
            asked, _ = self.questions[above]
            here &= says_yes(columns[asked.column], asked.cut, contexts) == yes
            if above in self.moving:
                here &= ~self.is_close(above, columns, contexts)
        return here

    def moved(self, gains: FloatArray) -> Node:
        """The tree with thresholds where sums of gains (n_questions, NEAR_BINS) are largest."""
        cuts = iter([self._best_cut(place, own) for place, own in enumerate(gains)])

        def rebuilt(node: Node) -> Node:
            if isinstance(node, Leaf):
                return node
            cut = next(cuts)
            return Branch(node.column, cut, rebuilt(node.yes), rebuilt(node.no))

        return rebuilt(self.root)

    def _best_cut(self, place: int, gains: FloatArray) -> float:
        """The best threshold; among equally good ones, the one nearest to the question's own."""
        own = self.questions[place][0].cut
        if place not in self.moving:
            return own
        worth = np.cumsum(gains)[:-1]
        best = np.flatnonzero(worth >= worth.max() - _ROUNDING * np.abs(gains).sum())
        chosen = best[np.abs(best - int(np.searchsorted(self.near[place], own))).argmin()]
        return float(self.near[place, chosen])


def look_close(root: Node, grid: Grid, beside: Callable[[Branch], Sequence[float]]) -> SecondLook:
    """A second look with the thresholds `beside` each question; a question without any stays.

    If there are fewer than fit, the question's own threshold fills the rest.
    """
    near = [
        sorted([*more, *[branch.cut] * (NEAR_BINS - 1 - len(more))])
        for branch in branches_of(root)
        for more in [beside(branch)]
    ]
    return SecondLook(root, grid, np.array(near, np.float64).reshape(-1, NEAR_BINS - 1))


def window(grid: Grid, branch: Branch) -> tuple[float, float]:
    """The grid's thresholds on either side of a question's own."""
    edges = (-np.inf, *grid.cuts[branch.column], np.inf)
    place = edges.index(branch.cut)
    return edges[place - 1], edges[place + 1]


def check_look(look: SecondLook, plan: TreePlan, columns: Sequence[Column]) -> None:
    """Raise a ValueError unless an honest search on this grid could have produced this look."""
    if look.near.shape != (len(look.questions), NEAR_BINS - 1):
        raise ValueError("thresholds are not of the questions")
    refined = {column.name for column in plan.refined(columns)}
    for (branch, path), near in zip(look.questions, look.near, strict=True):
        if len(path) >= plan.depth or branch.cut not in look.grid.cuts[branch.column]:
            raise ValueError("a question is not on the grid")
        if (np.diff(near) < 0).any() or branch.cut not in near:
            raise ValueError("thresholds do not rise, or the question's own is not among them")
        if columns[branch.column].name not in refined:
            if (near != branch.cut).any():
                raise ValueError("a threshold moves that the study agreed on")
            continue
        low, high = window(look.grid, branch)
        if not (low < near[0] and near[-1] < high):
            raise ValueError("a threshold is beyond the bins beside the question's own")
