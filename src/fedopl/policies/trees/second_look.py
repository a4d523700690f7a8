"""A second search for a tree's thresholds; each may move within the two bins beside it.

The questions and actions stay. Take one question, and the rows that come to it with a value close
to its threshold t: those below t get what the side of yes decides for them, those above what the
side of no does. Sums of Γ(yes) − Γ(no) over narrow bins say what another threshold would gain. Rows
whose way to the question is not settled, since they lie close to the threshold of one above it, are
left to that one; so every row has a say in one threshold at most.
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

# Of each question: as many narrow bins, of which half are to either side of its threshold.
NEAR_BINS = 32
BINS_TO_A_SIDE = NEAR_BINS // 2
# Gains this close, as a share of all gains' sizes, are the same.
_ROUNDING = 1e-9

Turn = tuple[int, bool]  # the place of a question, and whether the answer is yes


@dataclass(frozen=True, eq=False)
class SecondLook:
    """A tree on a grid, and the thresholds beside those of its questions.

    Questions are in the order of `branches_of`. Where all thresholds of one are its own, it stays.
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
        """The places of questions whose thresholds may move."""
        return np.flatnonzero(self.near[:, 0] < self.near[:, -1]).tolist()

    def staying(self, places: Collection[int]) -> "SecondLook":
        """The same, in which these questions stay as they are."""
        near = self.near.copy()
        for place in places:
            near[place] = self.questions[place][0].cut
        return replace(self, near=near)

    def cramped(self, rows: FloatArray, minimum_leaf: int) -> set[int]:
        """Moving questions above leaves that could come to hold too few of these rows (n_cells,).

        A leaf is smallest if all thresholds on the way to it move toward it as far as they may.
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
        """The answers that lead to each leaf, if there is a question at all."""
        found = []
        for place, (branch, path) in enumerate(self.questions):
            for yes, below in ((True, branch.yes), (False, branch.no)):
                if isinstance(below, Leaf):
                    found.append((*path, (place, yes)))
        return found

    def _left_over(self, place: int, *, yes: bool) -> BoolArray:  # (n_bins,)
        """The grid's bins that give an answer wherever a question's threshold moves."""
        branch, _ = self.questions[place]
        bins, cut = np.arange(self.grid.n_bins[branch.column]), self._place_on_grid(branch)
        reach = int(place in self.moving)
        if self.grid.is_level[branch.column]:
            same: BoolArray = bins == cut
            return same if yes else ~same
        kept: BoolArray = bins <= cut - reach if yes else bins > cut + reach
        return kept

    def _place_on_grid(self, branch: Branch) -> int:
        return self.grid.cuts[branch.column].index(branch.cut)

    def n_below(self, place: int) -> int:
        """How many of a question's narrow bins are at most its threshold."""
        return 1 + int(np.searchsorted(self.near[place], self.questions[place][0].cut))

    def is_close(
        self, place: int, columns: Sequence[Column], contexts: FloatArray
    ) -> BoolArray:  # (n_rows,)
        """Whether rows are in the two bins beside a question's threshold."""
        branch, _ = self.questions[place]
        low, high = window(self.grid, branch)
        values = columns[branch.column].values(contexts)
        close: BoolArray = (values > low) & (values <= high)
        return close

    def comes_to(
        self, place: int, columns: Sequence[Column], contexts: FloatArray
    ) -> BoolArray:  # (n_rows,)
        """Whether rows have a say in a question's threshold."""
        here = self.is_close(place, columns, contexts)
        for above, yes in self.questions[place][1]:
            asked, _ = self.questions[above]
            here &= says_yes(columns[asked.column], asked.cut, contexts) == yes
            if above in self.moving:
                here &= ~self.is_close(above, columns, contexts)
        return here

    def moved(self, gains: FloatArray) -> Node:
        """The tree with every threshold where gains (n_questions, NEAR_BINS) add up to most."""
        cuts = iter([self._best_cut(place, own) for place, own in enumerate(gains)])

        def rebuilt(node: Node) -> Node:
            if isinstance(node, Leaf):
                return node
            cut = next(cuts)
            return Branch(node.column, cut, rebuilt(node.yes), rebuilt(node.no))

        return rebuilt(self.root)

    def _best_cut(self, place: int, gains: FloatArray) -> float:
        """Of equally good best thresholds, the one nearest to the question's own."""
        own = self.questions[place][0].cut
        if place not in self.moving:
            return own
        worth = np.cumsum(gains)[:-1]
        best = np.flatnonzero(worth >= worth.max() - _ROUNDING * np.abs(gains).sum())
        chosen = best[np.abs(best - (self.n_below(place) - 1)).argmin()]
        return float(self.near[place, chosen])


def look_close(root: Node, grid: Grid, beside: Callable[[Branch], Sequence[float]]) -> SecondLook:
    """The second look with some thresholds beside those of each question; none, and it stays.

    Where there are fewer than there is room for, its own fills it up.
    """
    near = [
        sorted([*more, *[branch.cut] * (NEAR_BINS - 1 - len(more))])
        for branch in branches_of(root)
        for more in [beside(branch)]
    ]
    return SecondLook(root, grid, np.array(near, np.float64).reshape(-1, NEAR_BINS - 1))


def window(grid: Grid, branch: Branch) -> tuple[float, float]:
    """The thresholds of the grid to either side of a question's own."""
    edges = (-np.inf, *grid.cuts[branch.column], np.inf)
    place = edges.index(branch.cut)
    return edges[place - 1], edges[place + 1]


def check_look(look: SecondLook, plan: TreePlan, columns: Sequence[Column]) -> None:
    """A ValueError unless it is one that an honest search on this grid could have come to."""
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
