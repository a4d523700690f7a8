"""The local tree: what one party learns from its own scores alone."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import FloatArray, check_finite, check_length, float_array
from fedopl.base.errors import DataError, OptionError
from fedopl.base.labels import unique_names
from fedopl.client.local.cell_tables import Binning, cell_sums, near_sums
from fedopl.client.local.observed_tree import best_observed_tree
from fedopl.client.rows.chunks import ScoredRows
from fedopl.client.table.checked_arrays import checked_weights
from fedopl.policies.tree import TreePolicy
from fedopl.policies.tree_columns import Column, LevelColumn, NumberColumn, tree_columns
from fedopl.policies.trees.grid import Grid, agreed_grid, rules_of
from fedopl.policies.trees.growing import NO_TREE, grow_tree
from fedopl.policies.trees.nodes import Branch, Leaf, Node, branches_of
from fedopl.policies.trees.search import ROWS, WEIGHT
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
    rows = _scored_rows(contexts, scores, weights)
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


def _scored_rows(contexts: ArrayLike, scores: ArrayLike, weights: ArrayLike | None) -> ScoredRows:
    rows = float_array(contexts, "contexts", ndim=2)
    values = float_array(scores, "scores", ndim=2)
    check_length(values, "scores", len(rows))
    if not rows.size or not np.isfinite(values).any():
        raise DataError("contexts, scores: expected rows with a feature and a score, came none")
    return ScoredRows(
        contexts=rows,
        scores=values,
        weights=None if weights is None else checked_weights(weights, len(rows)),
    )


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
    for column, chosen in found.items():
        cuts[column] = grid.cuts[column]
        if not grid.is_level[column] and columns[column].name not in plan.cuts:
            values = columns[column].values(rows.contexts)[rows.usable]
            cuts[column] = _close_to(chosen, grid.cuts[column], values, plan.bins)
    is_level = tuple(grid.is_level[column] and column in found for column in range(len(cuts)))
    return Grid(tuple(cuts), is_level)


def _close_to(
    chosen: set[float], cuts: tuple[float, ...], values: FloatArray, n_bins: int
) -> tuple[float, ...]:
    edges = [-np.inf, *cuts, np.inf]
    finer = set(chosen)
    for cut in chosen:
        place = edges.index(cut)
        near = values[(values > edges[place - 1]) & (values <= edges[place + 1])]
        finer |= set(np.quantile(near, np.arange(1, n_bins) / n_bins)) if len(near) else set()
    return tuple(float(cut) for cut in sorted(finer))


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
