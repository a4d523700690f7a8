"""The best stump of a growing set of rows, compiled by numba, which only this file imports.

Rows enter group by group. A cut lies after a rank. It is open while enough rows lie on both its
sides. Rows only enter, so a cut that has opened stays open, and open cuts are neighbours. A stump
that takes action a up to a cut and b beyond it is worth Σ Γ(b) over all rows plus the sum of Γ(a) −
Γ(b) up to the cut. A segment tree over the ranks has the highest and the lowest of these sums at
its root. It takes O(log n) steps for each row that enters.
"""

from collections.abc import Callable
from typing import TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import FloatArray, IntArray

RankArray = NDArray[np.int32]
Function = TypeVar("Function", bound=Callable[..., object])

# A node's summary of the ranks below it: the sum of their weights, and the highest and the lowest
# sum up to an open cut among them. Node 1 is the root. Nodes 2k and 2k + 1 lie below node k. The
# second half of a tree are its ranks.
SUM, HIGHEST, LOWEST = 0, 1, 2


def _compiled(function: Function) -> Function:
    """The function as machine code, stored on disk for the next process if possible."""
    try:
        return cast(Function, numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:  # no directory that can be written to
        return cast(Function, numba.njit(nogil=True)(function))


@_compiled
def _open_cuts(
    entering: RankArray, n_ranks: int, ends: IntArray, minimum_leaf: int
) -> tuple[IntArray, IntArray]:  # (n_groups,) each
    """After each group, the first and the last open cut; if none is open, first is above last."""
    firsts, lasts = np.empty(len(ends), np.int64), np.empty(len(ends), np.int64)
    if minimum_leaf == 1:  # faster, and harmless: a stump with an empty side is a leaf
        firsts[:], lasts[:] = 0, n_ranks - 2
        return firsts, lasts
    first, n_up_to_first = n_ranks - 1, 0
    last, n_beyond_last = -1, 0
    counts = np.zeros(n_ranks, np.int64)
    start = 0
    for group in range(len(ends)):
        for rank in entering[start : ends[group]]:
            counts[rank] += 1
            n_up_to_first += rank <= first
            n_beyond_last += rank > last
        while n_up_to_first - counts[first] >= minimum_leaf:
            n_up_to_first -= counts[first]
            first -= 1
        while n_beyond_last - counts[last + 1] >= minimum_leaf:
            last += 1
            n_beyond_last -= counts[last]
        start, firsts[group], lasts[group] = ends[group], first, last
    return firsts, lasts


@_compiled
def _join(tree: FloatArray, node: int) -> None:
    """Compute a node from the two below it."""
    left, right = 2 * node, 2 * node + 1
    up_to_right = tree[left, SUM]
    tree[node, SUM] = up_to_right + tree[right, SUM]
    tree[node, HIGHEST] = max(tree[left, HIGHEST], up_to_right + tree[right, HIGHEST])
    tree[node, LOWEST] = min(tree[left, LOWEST], up_to_right + tree[right, LOWEST])


@_compiled
def _join_above(tree: FloatArray, first: int, last: int) -> None:
    """Recompute every node above some neighbouring ranks."""
    left, right = len(tree) // 2 + first, len(tree) // 2 + last
    while left > 1:
        left //= 2
        right //= 2
        for node in range(left, right + 1):
            _join(tree, node)


@_compiled
def _open(tree: FloatArray, first: int, last: int) -> None:
    """Open the cuts from the first to the last."""
    size = len(tree) // 2
    for leaf in range(size + first, size + last + 1):
        tree[leaf, HIGHEST] = tree[leaf, LOWEST] = tree[leaf, SUM]
    _join_above(tree, first, last)


@_compiled
def _extreme_sums(
    tree: FloatArray,  # (2 · size, 3)  working space
    entering: RankArray,  # (n_rows,)
    weights: FloatArray,  # (n_rows,)
    ends: IntArray,  # (n_groups,)
    firsts: IntArray,  # (n_groups,)
    lasts: IntArray,  # (n_groups,)
) -> tuple[FloatArray, FloatArray]:  # (n_groups,) each
    """After each group, the highest and the lowest sum of weights up to an open cut."""
    highest, lowest = np.empty(len(ends)), np.empty(len(ends))
    tree[:, SUM], tree[:, HIGHEST], tree[:, LOWEST] = 0.0, -np.inf, np.inf
    size = len(tree) // 2
    many = size / np.log2(size)  # with more rows, joining the whole tree is faster
    start, first, last = 0, 0, -1
    for group in range(len(ends)):
        for row in range(start, ends[group]):
            for part in range(3):  # a closed cut stays infinite whatever is added to it
                tree[size + entering[row], part] += weights[row]
        if ends[group] - start > many:
            _join_above(tree, 0, size - 1)
        else:
            for row in range(start, ends[group]):
                _join_above(tree, entering[row], entering[row])
        if first > last:  # none was open
            first, last = firsts[group], firsts[group] - 1
        if firsts[group] < first:
            _open(tree, firsts[group], first - 1)
        if last < lasts[group]:
            _open(tree, last + 1, lasts[group])
        start, first, last = ends[group], firsts[group], lasts[group]
        highest[group], lowest[group] = tree[1, HIGHEST], tree[1, LOWEST]
    return highest, lowest


@_compiled
def best_stumps(
    ranks: RankArray,  # (n_questions, n_rows)  of rows in the order in which they enter
    n_ranks: IntArray,  # (n_questions,)  two or more
    scores: FloatArray,  # (n_actions, n_rows)
    totals: FloatArray,  # (n_actions, n_groups)  of the rows that have entered
    ends: IntArray,  # (n_groups,)  how many rows have entered after each group
    minimum_leaf: int,
) -> FloatArray:  # (n_groups,)
    """After each group, the sum of the best stump's scores; −∞ where no cut is open."""
    best = np.full(len(ends), -np.inf)
    for question in range(len(ranks)):
        entering = ranks[question]
        firsts, lasts = _open_cuts(entering, n_ranks[question], ends, minimum_leaf)
        size = 2 ** int(np.ceil(np.log2(n_ranks[question])))
        tree = np.empty((2 * size, 3))
        for a in range(len(scores)):
            for b in range(a + 1, len(scores)):
                weights = scores[a] - scores[b]
                highest, lowest = _extreme_sums(tree, entering, weights, ends, firsts, lasts)
                for group in range(len(ends)):
                    a_then_b = totals[b, group] + highest[group]
                    b_then_a = totals[a, group] - lowest[group]
                    best[group] = max(best[group], a_then_b, b_then_a)
    return best
