"""Score sums over a grid's cells, which give the best tree for any mixture."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.base.errors import FederationError, OptionError
from fedopl.messages.combining import plain_sum, weighted_sum
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.grid import Grid, rules_of
from fedopl.policies.trees.growing import NO_TREE, GrowingTree, grow_tree
from fedopl.policies.trees.nodes import Branch, Leaf, Node, branches_of
from fedopl.policies.trees.search import FIRST_ACTION, ROWS, WEIGHT
from fedopl.policies.trees.second_look import SecondLook
from fedopl.policies.trees.tree_plan import LOOK_AHEAD
from fedopl.results.sums.any_mixture import Solved, nonzero, only_of, scored_by_all, sizes
from fedopl.results.sums.taken_rows import TakenRows
from fedopl.study.mixture import Weights, renormalised
from fedopl.study.study import Study

# By partition of the rows, one for each tree: the sums of every open node.
CellsOfAll = Callable[[Sequence[Node]], Sequence[Sequence[FloatArray]] | None]


@dataclass(frozen=True, eq=False, kw_only=True)
class TreeStatistics:
    """Every client's sums over the whole grid, as reported when the root was searched for."""

    study: Study
    grid: Grid
    cells: dict[str, FloatArray]  # by client, (n_cells, n_numbers)
    closer: "ThresholdsMoved | None" = None  # where clients were asked once more
    doubts: "LeafDoubts | None" = None  # where the study is cautious

    @property
    def is_exact(self) -> bool:
        """Whether the tree is the best of all on the grid, not just two levels ahead."""
        return self.study.tree.depth <= LOOK_AHEAD

    @property
    def clients(self) -> list[str]:
        """The clients that reported cells."""
        return sorted(self.cells)

    def restricted(self, names: Collection[str]) -> Self:
        """The cells of these clients alone.

        Trees beyond depth two were grown with further questions, so they cannot be found for other
        weights.
        """
        if not self.is_exact:
            raise OptionError(
                "tree: only trees of depth 1 and 2 can be solved again for other weights"
            )
        cells = dict(only_of(self.cells, names))
        closer = self.closer.restricted(cells) if self.closer else None
        return replace(self, cells=cells, closer=closer)

    def solve(self, weights: Weights) -> TreePolicy:
        """The best tree for these weights; no client is asked.

        If clients were asked about thresholds close to the tree's own, its thresholds move;
        otherwise they stay on the grid.
        """
        found = grown_tree(self.study, self.grid, self.mixed(weights))
        if self.closer is None or found.root != self.closer.look.root:
            return found
        return replace(found, root=self.closer.moved(weights, self.roomy(self.closer.look)))

    def mixed(self, weights: Weights) -> FloatArray:  # (n_cells, n_numbers)
        """The cells in the mixture, followed by the numbers that caution needs."""
        shares = renormalised(weights, self.cells.keys())
        mixed = mixed_cells(self.cells, shares)
        return np.hstack([mixed, self.doubts.squared(shares)]) if self.doubts else mixed

    def is_looked_at_twice(self, weights: Weights) -> bool:
        """Whether clients were asked about thresholds close to those of the tree for these weights.

        Another tree, for other weights or of other clients, stays on the grid.
        """
        on_grid = replace(self, closer=None).solve(weights)
        return self.closer is not None and on_grid.root == self.closer.look.root

    def roomy(self, look: SecondLook) -> SecondLook:
        """The second look without moves of thresholds that could leave too few rows in a leaf."""
        least = self.study.tree.minimum_leaf
        if least <= 1:
            return look
        rows = plain_sum({name: numbers[:, ROWS] for name, numbers in self.cells.items()})
        return look.staying(look.cramped(rows, least))

    def solve_contrast(self, signed: Mapping[str, float]) -> TreePolicy:
        """The best tree of at most depth two for signed weights; its splits cost nothing."""
        signed = nonzero(signed, self.cells)
        study, grid = self.study, self.grid
        scored = [_scored_weight(grid.line(self.cells[n], 0), study.n_actions) for n in signed]
        known = scored_by_all(np.stack(scored) > 0, signed)
        flipped = {
            name: _flipped(self.cells[name], float(np.sign(sign)), known)
            for name, sign in signed.items()
        }
        cells = mixed_cells(flipped, sizes(signed))
        rules = replace(rules_of(study.tree, study.columns, grid, study.actions), split_cost=0.0)
        depth = min(study.tree.depth, LOOK_AHEAD)
        root, value = grow_tree(grid, depth, rules, lambda _: [cells])
        if not np.isfinite(value):
            raise FederationError("no tree keeps to the rules of the study")
        return TreePolicy.of(root, study)

    def value(self, client: str, policy: Solved) -> float:
        """The value of a tree on one client's training rows."""
        if not isinstance(policy, TreePolicy):
            raise OptionError("policy: expected a tree")
        if any(b.cut not in self.grid.cuts[b.column] for b in branches_of(policy.root)):
            raise OptionError(
                "policy: a threshold is not one of the grid's, and only between those are there "
                "sums; take the tree of a study with refine = false"
            )
        return tree_value(self.cells[client], self.grid, self.study.n_actions, policy.root)

    def on_grid(self, policy: TreePolicy) -> Node:
        """A tree that was found from these sums, before its thresholds moved off the grid."""
        cuts = self.grid.cuts
        moved = any(branch.cut not in cuts[branch.column] for branch in branches_of(policy.root))
        return self.closer.look.root if moved and self.closer else policy.root

    def leaf_means(self, policy: TreePolicy, weights: Weights) -> FloatArray:
        """The mean score of each action in each leaf of such a tree (n_leaves, n_actions).

        In the mixture; NaN where nobody has a score.
        """
        sums = self.leaf_sums(self.on_grid(policy))
        mixed = mixed_cells(sums, renormalised(weights, sums.keys()))
        scores, scored = np.split(mixed[:, FIRST_ACTION:], [self.study.n_actions], axis=1)
        known = scored if scored.size else mixed[:, [WEIGHT]]
        return np.where(known > 0, scores / np.where(known > 0, known, 1.0), np.nan)

    def leaf_sums(self, root: Node) -> dict[str, FloatArray]:  # by client, (n_leaves, n_numbers)
        """The sums over the rows of each leaf of a tree on the grid, of depth two at most."""
        return {
            name: np.array([numbers for _, numbers in _leaves(cells, self.grid, root)])
            for name, cells in sorted(self.cells.items())
        }


@dataclass(frozen=True, eq=False)
class Searched:
    """A tree for the study's mixture, and all that clients reported for it."""

    policy: TreePolicy
    statistics: TreeStatistics


@dataclass(frozen=True, eq=False, kw_only=True)
class LeafDoubts:
    """Every client's report on the uncertainty of sums over cells, and the variance of outcomes.

    (n_cells, n_actions) by client: Σ w²/ê(x; a) over the square of all its weight. Times σ², this
    is the variance that weights give to the sum of a cell's scores.
    """

    caution: float
    cells: dict[str, FloatArray]
    taken: TakenRows

    def squared(self, shares: Weights) -> FloatArray:  # (n_cells, n_actions)
        """Squares of what is subtracted from score sums in the mixture; they add up over cells."""
        variances = {name: share**2 for name, share in shares.items() if share}
        own = {name: self.cells[name] for name in variances}
        return self.caution**2 * self.taken.noise(own) * weighted_sum(variances, own)


@dataclass(frozen=True, eq=False)
class ThresholdsMoved:
    """A tree's gains from thresholds close to those of the grid, as clients reported."""

    look: SecondLook
    gains: dict[str, FloatArray]  # by client, (n_questions, n_bins)

    def restricted(self, names: Collection[str]) -> "ThresholdsMoved | None":
        """What these clients reported; None if they did not."""
        gains = {name: own for name, own in self.gains.items() if name in names}
        return replace(self, gains=gains) if gains else None

    def moved(self, weights: Weights, look: SecondLook) -> Node:
        """The tree with the thresholds that gain most in the mixture of clients that reported.

        It stays unchanged if none of them has weight.
        """
        own = {name: weights.get(name, 0.0) for name in self.gains}
        if not any(own.values()):
            return look.root
        return look.moved(weighted_sum(renormalised(own, own.keys()), self.gains))


def grown_tree(study: Study, grid: Grid, cells: FloatArray) -> TreePolicy:
    """The tree of depth two at most by the study's rules, from the mixture's cells."""
    return grown_trees(study, grid, 1, lambda _: [[cells]])[0]


def grown_trees(study: Study, grid: Grid, n_trees: int, cells_of: CellsOfAll) -> list[TreePolicy]:
    """Trees by the study's rules, all of which are searched one level further at a time.

    `cells_of` takes every tree's partition of the rows and returns the mixture's sums of its open
    nodes; or none at all, where trees have to end.
    """
    rules = rules_of(study.tree, study.columns, grid, study.actions)
    rules = replace(rules, is_doubted=study.doubts_leaves)
    trees = [GrowingTree(grid, study.tree.depth, rules) for _ in range(n_trees)]
    while not all(tree.is_finished for tree in trees):
        found = cells_of([tree.partition for tree in trees])
        for place, tree in enumerate(trees):
            tree.grow(None if found is None else found[place])
    if not all(np.isfinite(tree.value) for tree in trees):
        raise FederationError(NO_TREE)
    return [TreePolicy.of(tree.root, study) for tree in trees]


def mixed_cells(cells: Mapping[str, FloatArray], weights: Weights) -> FloatArray:
    """The mixture of the clients' sums; counts of rows are added without weights."""
    widest = max(numbers.shape[1] for numbers in cells.values())
    complete = {name: _widened(numbers, widest) for name, numbers in cells.items()}
    mixed = weighted_sum(weights, complete)
    mixed[:, ROWS] = plain_sum({name: numbers[:, ROWS] for name, numbers in complete.items()})
    return mixed


def _widened(numbers: FloatArray, width: int) -> FloatArray:  # (n_cells, width)
    """With the weight of the rows behind each action's sum: all rows, if not reported."""
    if numbers.shape[1] == width:
        return numbers
    known = np.repeat(numbers[:, [WEIGHT]], numbers.shape[1] - FIRST_ACTION, axis=1)
    return np.concatenate([numbers, known], axis=1)


def _scored_weight(line: FloatArray, n_actions: int) -> FloatArray:  # (n_actions,)
    """The weight of the rows that have each action's score; 1 if none is reported."""
    reported = line[:, FIRST_ACTION + n_actions :].sum(axis=0)
    return reported if reported.size else np.ones(n_actions)


def _flipped(cells: FloatArray, sign: float, known: BoolArray) -> FloatArray:
    """The cells with scores of this sign, without actions that some client has no score for."""
    flipped = cells.copy()
    n_actions = len(known)
    flipped[:, FIRST_ACTION : FIRST_ACTION + n_actions] *= sign * known
    if cells.shape[1] > FIRST_ACTION + n_actions:
        flipped[:, FIRST_ACTION + n_actions :] *= known
    elif not known.all():  # this client has all scores, but others do not
        flipped = np.concatenate([flipped, np.outer(cells[:, WEIGHT], known)], axis=1)
    return flipped


def tree_value(cells: FloatArray, grid: Grid, n_actions: int, root: Node) -> float:
    """The mean score of the decisions of a tree of depth two at most, from one client's cells.

    Rows without a score for the decision are left out, as in the evaluation on held-out rows.
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
    for first, below in _sides(grid, root):
        if isinstance(below, Leaf):
            found.append((below, grid.line(cells, root.column)[first].sum(axis=0)))
            continue
        table = grid.table(cells, root.column, below.column)[first].sum(axis=0)
        for second, leaf in _sides(grid, below):
            if not isinstance(leaf, Leaf):
                raise OptionError("tree: cells of two columns tell values of depth two at most")
            found.append((leaf, table[second].sum(axis=0)))
    return found


def _sides(grid: Grid, split: Branch) -> tuple[tuple[BoolArray, Node], tuple[BoolArray, Node]]:
    """The bins with answer yes, (n_bins,), and the node below; then the same for answer no."""
    places = np.arange(grid.n_bins[split.column])
    cut = grid.cuts[split.column].index(split.cut)
    yes = places == cut if grid.is_level[split.column] else places <= cut
    return (yes, split.yes), (~yes, split.no)
