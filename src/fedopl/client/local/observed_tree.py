"""The best small tree over every threshold that one party observed: exact, from its own rows.

A row's rank in a column is the place of its value among the column's distinct values. A column of
levels has one question per level, in which the level has rank 0 and the others rank 1. So every
split asks whether a rank is at most some rank. To find the best split of a question, its rows enter
rank by rank, once from either end. After each rank, the gain of the best leaf or stump of the rows
so far is updated. For depth two this takes O(p²·n·d²·log n). Needs the `observed` extra.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.errors import OptionError
from fedopl.policies.trees.nodes import Branch, Leaf, Node
from fedopl.policies.trees.search import ROUNDING, WORTH_A_SPLIT, Found


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

    def among(self, rows: BoolArray) -> "_Question":
        """The same question for some of the rows."""
        return replace(self, ranks=self.ranks[rows])


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
        _best_node([q.among(side) for q in questions], scores[side], depth - 1, rules)
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
