"""The local tree: what one party learns from its own scores alone.

Every threshold that the party observed can be tried, which needs the `observed` extra. A row's rank
in a column is the place of its value among the column's distinct values. A column of levels has one
question per level, in which the level has rank 0 and the others rank 1. So every split asks whether
a rank is at most some rank. To find the best split of a question, its rows enter rank by rank, once
from either end. After each rank, the gain of the best leaf or stump of the rows so far is updated.
For depth two this takes O(p²·n·d²·log n).
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedopl.base.arrays import (
    FloatArray,
    IntArray,
    check_finite,
    check_length,
    float_array,
)
from fedopl.base.errors import DataError, OptionError
from fedopl.base.labels import unique_names
from fedopl.client.local.cell_tables import Binning, cell_sums, near_sums
from fedopl.client.rows.chunks import ScoredRows
from fedopl.client.table.checked_arrays import checked_weights
from fedopl.policies.tree import TreePolicy
from fedopl.policies.tree_columns import Column, LevelColumn, NumberColumn, tree_columns
from fedopl.policies.trees.grid import Grid, agreed_grid, rules_of
from fedopl.policies.trees.growing import NO_TREE, grow_tree
from fedopl.policies.trees.nodes import Branch, Leaf, Node, branches_of
from fedopl.policies.trees.search import ROUNDING, ROWS, WEIGHT, WORTH_A_SPLIT, Found
from fedopl.policies.trees.second_look import BINS_TO_A_SIDE, SecondLook, look_close, window
from fedopl.policies.trees.tree_plan import LOOK_AHEAD, TreePlan

# The rows, in blocks; called once for each pass.
ScoredParts = Callable[[], Iterable[ScoredRows]]
# If rows come in several parts, quantiles are taken of one row in this many.
SPREAD = 16


def search_tree(
    contexts: ArrayLike,
    scores: ArrayLike,
    plan: TreePlan | None = None,
    *,
    refine: bool = True,
    weights: ArrayLike | None = None,
    feature_names: Sequence[str] | None = None,
    action_names: Sequence[str] | None = None,
) -> TreePolicy:
    """The best tree for these scores, for somebody who holds all rows.

    Args:
        contexts: a column for each feature, each a number.
        scores: what each action is worth in each row, such as `aipw_scores(...).values`.
        plan: how deep the tree may be and where it may split. On a grid, thresholds are quantiles
            of the rows; with `thresholds="observed"` every threshold is tried.
        refine: up to depth 2, search once more on a grid that is fine close to the thresholds that
            were found, unless the plan says otherwise. Thresholds that it names stay as they are.
        weights: how much each row counts.
        feature_names: what features are called, if not x0, x1 and so on.
        action_names: what actions are called, if not 0, 1 and so on.

    """
    points = float_array(contexts, "contexts", ndim=2)
    values = float_array(scores, "scores", ndim=2)
    check_length(values, "scores", len(points))
    if not points.size or not np.isfinite(values).any():
        raise DataError("contexts, scores: expected rows with a feature and a score, came none")
    counted = None if weights is None else checked_weights(weights, len(points))
    rows = ScoredRows(contexts=points, scores=values, weights=counted)
    features = feature_names or [f"x{f}" for f in range(rows.contexts.shape[1])]
    features = unique_names(features, "feature_names")
    actions = action_names or [str(a) for a in range(rows.scores.shape[1])]
    actions = unique_names(actions, "action_names")
    if (len(features), len(actions)) != (rows.contexts.shape[1], rows.scores.shape[1]):
        raise DataError("feature_names, action_names: expected one for each column of both tables")
    check_finite(rows.contexts, "contexts", features)
    plan, columns = plan or TreePlan(), tree_columns(features, None)
    try:
        plan.check(columns, actions)
    except ValueError as error:
        raise OptionError(str(error)) from None
    if plan.thresholds == "observed":
        return TreePolicy(_on_observed(rows, plan, columns), actions, features)
    grid = _own_grid(_some_contexts(lambda: [rows]), plan, columns)
    found = _on_grid(lambda: [rows], grid, plan, columns, actions)
    if refine and plan.refine and plan.depth <= LOOK_AHEAD:
        finer = _finer_grid(rows, grid, found[0], plan, columns)
        again = _on_grid(lambda: [rows], finer, plan, columns, actions)
        found = max(found, again, key=lambda f: f[1])
    if not np.isfinite(found[1]):
        raise OptionError(NO_TREE)
    return TreePolicy(found[0], actions, features)


def best_local_tree(
    parts: ScoredParts, plan: TreePlan, columns: tuple[Column, ...], actions: tuple[str, ...]
) -> Node:
    """The best tree on these rows, on a grid of their quantiles or on all observed thresholds."""
    if plan.thresholds == "observed":
        (rows,) = parts()
        return _on_observed(rows, plan, columns)
    contexts = _some_contexts(parts)
    grid = _own_grid(contexts, plan, columns)
    root, _ = _on_grid(parts, grid, plan, columns, actions)
    look = _close_to_own(root, grid, contexts, plan, columns)
    if not look.moving:
        return root
    binning = Binning(columns=columns, grid=grid)
    if plan.minimum_leaf > 1:
        held = cell_sums(parts(), binning)[0, :, ROWS]
        look = look.staying(look.cramped(held, plan.minimum_leaf))
    # Rows need scores only for the actions that a threshold decides between.
    needed = np.zeros(len(actions), bool)
    return look.moved(near_sums(parts(), look, binning, needed).gains)


def _close_to_own(
    root: Node, grid: Grid, contexts: FloatArray, plan: TreePlan, columns: tuple[Column, ...]
) -> SecondLook:
    """A second look as in a federation, at quantiles of these rows."""
    refined = {column.name for column in plan.refined(columns)}
    levels = np.arange(1, BINS_TO_A_SIDE) / BINS_TO_A_SIDE

    def beside(branch: Branch) -> list[float]:
        column, found = columns[branch.column], list[float]()
        low, high = window(grid, branch)
        values = column.values(contexts)
        for least, most in ((low, branch.cut), (branch.cut, high)):
            within = values[(values > least) & (values < most)]
            if column.name in refined and len(within):
                found += np.unique(np.quantile(within, levels)).tolist()
        return found

    return look_close(root, grid, beside)


def _on_grid(
    parts: ScoredParts,
    grid: Grid,
    plan: TreePlan,
    columns: tuple[Column, ...],
    actions: tuple[str, ...],
) -> tuple[Node, float]:
    """The best tree on this grid, and its value."""

    def cells_of(partition: Node) -> list[FloatArray]:
        binning = Binning(columns=columns, grid=grid, partition=partition)
        sums = as_shares(cell_sums(parts(), binning), grid)
        return list(sums[: binning.n_open])

    return grow_tree(grid, plan.depth, rules_of(plan, columns, grid, actions), cells_of)


def as_shares(sums: FloatArray, grid: Grid) -> FloatArray:  # shaped as sums
    """The sums as shares of the total weight, in place; counts of rows stay counts."""
    total = sums[:, grid.whole, WEIGHT].sum()
    # If there is no weight, all sums are zero and stay zero.
    sums[..., WEIGHT:] /= total or 1.0
    return sums


def _own_grid(contexts: FloatArray, plan: TreePlan, columns: tuple[Column, ...]) -> Grid:
    """A grid of the quantiles of these rows."""
    levels = np.arange(1, plan.bins) / plan.bins
    proposed = {
        column.name: np.unique(np.quantile(column.values(contexts), levels)).tolist()
        for column in columns
        if isinstance(column, NumberColumn) and column.name not in plan.cuts
    }
    return agreed_grid(plan, columns, proposed)


def _some_contexts(parts: ScoredParts) -> FloatArray:  # (n_rows, n_features)
    """Contexts of rows with a score: all of a single part, one in `SPREAD` of several parts."""

    def usable(rows: ScoredRows) -> FloatArray:
        # If all rows have a score, nothing is copied.
        return rows.contexts if rows.usable.all() else rows.contexts[rows.usable]

    first, *more = islice(parts(), 2)
    return np.concatenate([usable(rows)[::SPREAD] for rows in parts()]) if more else usable(first)


def _finer_grid(
    rows: ScoredRows, grid: Grid, root: Node, plan: TreePlan, columns: tuple[Column, ...]
) -> Grid:
    """Quantiles of the rows in the bins on either side of each threshold of the tree.

    Columns that the tree does not ask about are not cut.
    """
    found: dict[int, set[float]] = {}
    for branch in branches_of(root):
        found.setdefault(branch.column, set()).add(branch.cut)
    cuts: list[tuple[float, ...]] = [()] * grid.n_columns
    levels = np.arange(1, plan.bins) / plan.bins
    for column, chosen in found.items():
        cuts[column] = grid.cuts[column]
        if not grid.is_level[column] and columns[column].name not in plan.cuts:
            values = columns[column].values(rows.contexts)[rows.usable]
            edges, finer = [-np.inf, *grid.cuts[column], np.inf], set(chosen)
            for cut in chosen:
                place = edges.index(cut)
                near = values[(values > edges[place - 1]) & (values <= edges[place + 1])]
                finer |= set(np.quantile(near, levels)) if len(near) else set()
            cuts[column] = tuple(float(cut) for cut in sorted(finer))
    is_level = tuple(grid.is_level[column] and column in found for column in range(len(cuts)))
    return Grid(tuple(cuts), is_level)


def _on_observed(rows: ScoredRows, plan: TreePlan, columns: tuple[Column, ...]) -> Node:
    """The best tree over all observed thresholds; it uses only actions scored in every row."""
    contexts, scores = rows.contexts[rows.usable], rows.scores[rows.usable]
    known = np.flatnonzero(np.isfinite(scores).all(axis=0))
    if not len(known):
        raise DataError("scores: no action has a score in every row")
    asked = [p for p, c in enumerate(columns) if not plan.columns or c.name in plan.columns]
    weights = np.ones(len(scores)) if rows.weights is None else rows.weights[rows.usable]
    found = best_observed_tree(
        np.column_stack([columns[place].values(contexts) for place in asked]),
        tuple(isinstance(columns[place], LevelColumn) for place in asked),
        scores[:, known] * (weights / weights.sum())[:, None],
        depth=plan.depth,
        minimum_leaf=plan.minimum_leaf,
        split_cost=plan.split_cost,
    )

    def renamed(node: Node) -> Node:
        if isinstance(node, Leaf):
            return Leaf(int(known[node.action]))
        return Branch(asked[node.column], node.cut, renamed(node.yes), renamed(node.no))

    return renamed(found.node)


# --- over every observed threshold ----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Rules:
    """Rules that a tree has to obey."""

    minimum_leaf: int
    split_cost: float
    tie: float  # a split has to gain more than its cost plus this


@dataclass(frozen=True, eq=False)
class _Question:
    """A column, or one level of it, and every rank that rows can be split after."""

    column: int
    cuts: FloatArray  # (n_ranks − 1,)  the column's threshold after each rank but the last
    ranks: NDArray[np.int32]  # (n_rows,)

    @property
    def n_ranks(self) -> int:
        """The number of ranks, including those that no row has."""
        return len(self.cuts) + 1


def best_observed_tree(
    values: FloatArray,  # (n_rows, n_columns)  numbers, or positions of levels
    is_level: tuple[bool, ...],  # (n_columns,)
    scores: FloatArray,  # (n_rows, n_actions)
    *,
    depth: int,
    minimum_leaf: int = 1,
    split_cost: float = 0.0,
) -> Found:
    """The best tree of depth 0, 1 or 2; ties are resolved as `best_tree` does."""
    if depth not in (0, 1, 2):
        raise ValueError(f"depth: expected 0, 1 or 2, came {depth}")
    if split_cost < 0:
        raise ValueError(f"split_cost: expected 0 or more, came {split_cost}")
    if find_spec("numba") is None:
        raise OptionError("thresholds: observed ones need numba; pip install 'fedopl[observed]'")
    tie = ROUNDING * float(np.abs(scores).sum())
    cost = split_cost + WORTH_A_SPLIT * tie
    rules = _Rules(minimum_leaf=max(minimum_leaf, 1), split_cost=cost, tie=tie)
    node = _best_node(list(_questions(values, is_level)), scores, depth, rules)
    if len(scores) < rules.minimum_leaf:
        return Found(node, -np.inf)
    return Found(node, _worth(node, values, is_level, scores, split_cost))


def _questions(values: FloatArray, is_level: tuple[bool, ...]) -> Iterator[_Question]:
    """All possible questions about the columns, in their order."""
    for column, has_levels in enumerate(is_level):
        distinct, ranks = np.unique(values[:, column], return_inverse=True)
        if len(distinct) < 2:
            continue
        if has_levels:
            # With two levels, the second would ask the same as the first.
            for level in range(len(distinct) if len(distinct) > 2 else 1):
                yield _Question(column, distinct[[level]], (ranks != level).astype(np.int32))
        else:
            yield _Question(column, _midpoints(distinct), ranks.astype(np.int32))


def _midpoints(distinct: FloatArray) -> FloatArray:  # (n_distinct − 1,)
    """Midpoints of neighbours; the lower neighbour where a midpoint would round to the upper."""
    lower, upper = distinct[:-1], distinct[1:]
    middle = lower / 2 + upper / 2  # halved first, because the sum of large values may overflow
    return np.where((lower <= middle) & (middle < upper), middle, lower)


def _best_node(
    questions: Sequence[_Question], scores: FloatArray, depth: int, rules: _Rules
) -> Node:
    """The best tree of these rows: a leaf, unless a split gains more than it costs."""
    leaf = Leaf(int(scores.sum(axis=0).argmax()))
    split = _best_split(questions, scores - scores[:, [leaf.action]], depth, rules)
    if split is None:
        return leaf
    question, place = split
    says_yes = question.ranks <= place
    yes, no = (
        _best_node(
            [replace(q, ranks=q.ranks[side]) for q in questions], scores[side], depth - 1, rules
        )
        for side in (says_yes, ~says_yes)
    )
    return Branch(question.column, float(question.cuts[place]), yes, no)


def _best_split(
    questions: Sequence[_Question], gains: FloatArray, depth: int, rules: _Rules
) -> tuple[_Question, int] | None:
    """The question and rank with the largest gain, the first of equals; None if no split gains.

    Gains are scores less those of the best leaf, so a split without a gain is no better than that.
    """
    if depth == 0:
        return None
    by_action = np.ascontiguousarray(gains.T)
    below = questions if depth == 2 else ()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        of_questions = pool.map(lambda q: _split_gains(q, below, by_action, rules), questions)
    best, most = None, 0.0
    for question, of_cuts in zip(questions, of_questions, strict=True):
        place = int((of_cuts >= of_cuts.max() - rules.tie).argmax())
        if of_cuts[place] > most + rules.tie:
            best, most = (question, place), float(of_cuts[place])
    return best


def _split_gains(
    question: _Question, below: Sequence[_Question], gains: FloatArray, rules: _Rules
) -> FloatArray:  # (n_ranks − 1,)
    """For each cut, what the best trees on both sides gain, less the cost of splits."""
    order = np.argsort(question.ranks, kind="stable")
    counts = np.bincount(question.ranks, minlength=question.n_ranks)
    yes = _side_gains(order, counts[:-1].cumsum(), below, gains, rules)
    no = _side_gains(order[::-1], counts[:0:-1].cumsum(), below, gains, rules)[::-1]
    return yes + no - rules.split_cost


def _side_gains(
    order: IntArray,  # (n_rows,)
    ends: IntArray,  # (n_groups,)
    below: Sequence[_Question],
    gains: FloatArray,  # (n_actions, n_rows)
    rules: _Rules,
) -> FloatArray:  # (n_groups,)
    """The gain of the first rows in an order, up to each end, by the best leaf or stump."""
    entering = gains.take(order, axis=1)
    totals = entering.cumsum(axis=1).take(ends - 1, axis=1)  # without rows, too few for a leaf
    leaves: FloatArray = np.where(ends >= rules.minimum_leaf, totals.max(axis=0), -np.inf)
    if not below:
        return leaves
    from fedopl.client.local.observed_kernels import best_stumps

    ranks = np.stack([question.ranks[order] for question in below])
    n_ranks = np.array([question.n_ranks for question in below])
    stumps = best_stumps(ranks, n_ranks, entering, totals, ends, rules.minimum_leaf)
    return np.maximum(leaves, stumps - rules.split_cost)


def _worth(
    node: Node,
    values: FloatArray,
    is_level: tuple[bool, ...],
    scores: FloatArray,
    split_cost: float,
) -> float:
    """The sum of the scores that the tree earns on these rows, less the cost of its splits."""
    if isinstance(node, Leaf):
        return float(scores[:, node.action].sum())
    asked = values[:, node.column]
    says_yes = asked == node.cut if is_level[node.column] else asked <= node.cut
    yes, no = (
        _worth(below, values[side], is_level, scores[side], split_cost)
        for below, side in ((node.yes, says_yes), (node.no, ~says_yes))
    )
    return yes + no - split_cost
