"""Trees along prices of their spending, from the sums over a grid's cells alone.

At a price μ the best tree maximises Σ Γ(a) − μ·c_a, whose sums follow from those of scores and the
weight of each cell. The trees that are best at some price are the corners of the upper hull of
trees' spending and gains. Two neighbours are equally good at one price, and a tree between them is
found there.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.search import FIRST_ACTION, WEIGHT
from fedopl.results.sums.tree_statistics import TreeStatistics, mixed_cells, tree_value
from fedopl.study.mixture import Weights, renormalised

_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False, kw_only=True)
class PricedTree:
    """The best tree at a price, with its gain and spending on training rows."""

    price: float
    tree: TreePolicy
    gain: float
    spending: float


def tree_at(
    statistics: TreeStatistics, weights: Weights, price: float, costs: FloatArray
) -> TreePolicy:
    """The best tree with a price on the cost of each action, (n_actions,)."""
    if not price:
        return statistics.solve(weights)
    cells = {
        name: _with_scores(own, _scores(own, len(costs)) - price * _weights(own, costs))
        for name, own in statistics.cells.items()
    }
    return replace(statistics, cells=cells).solve(weights)


def tree_path(
    statistics: TreeStatistics, weights: Weights, costs: FloatArray, most: int
) -> list[PricedTree]:
    """A few trees that are best at some price, by rising price and falling spending."""
    shares = renormalised(weights, statistics.cells.keys())
    mixed = mixed_cells(statistics.cells, shares)
    spent, grid = _with_scores(mixed, _weights(mixed, costs)), statistics.grid

    def at(price: float) -> PricedTree:
        tree = tree_at(statistics, weights, price, costs)
        gain, spending = (
            float(tree_value(sums, grid, len(costs), tree.root)) for sums in (mixed, spent)
        )
        return PricedTree(price=price, tree=tree, gain=gain, spending=spending)

    path = [at(0.0), at(_highest_price(mixed, costs))]
    waiting = [(path[0], path[1])]
    while waiting and len(path) < most:
        dear, cheap = waiting.pop(0)
        price = _alike_at(dear, cheap)
        if price is None:
            continue
        found = at(price)
        better = found.gain - price * found.spending - (dear.gain - price * dear.spending)
        if better > _ROUNDING * abs(dear.gain) and cheap.spending < found.spending < dear.spending:
            path.append(found)
            waiting += [(dear, found), (found, cheap)]
    return _falling(sorted(path, key=lambda one: one.price))


def _alike_at(dear: PricedTree, cheap: PricedTree) -> float | None:
    """The price at which two trees are equally good; None if it is not between their own."""
    saved = dear.spending - cheap.spending
    if not saved > _ROUNDING * abs(dear.spending):
        return None
    price = float(dear.gain - cheap.gain) / saved
    return price if dear.price < price < cheap.price and math.isfinite(price) else None


def _falling(path: list[PricedTree]) -> list[PricedTree]:
    """The path without trees that spend no less than one at a lower price."""
    found = path[:1]
    for one in path[1:]:
        if one.spending < found[-1].spending:
            found.append(one)
    return found


def _highest_price(cells: FloatArray, costs: FloatArray) -> float:
    """A price at which no dearer action is worth its cost in any cell."""
    weight = np.maximum(cells[:, [WEIGHT]], 1e-300)
    apart = np.ptp(_scores(cells, len(costs)) / weight, axis=1)[cells[:, WEIGHT] > 0]
    steps = np.diff(np.unique(costs))
    return 2.0 * float(apart.max(initial=0.0)) / float(steps.min(initial=np.inf)) or 1.0


def _scores(cells: FloatArray, n_actions: int) -> FloatArray:  # (n_cells, n_actions)
    return cells[:, FIRST_ACTION : FIRST_ACTION + n_actions]


def _weights(cells: FloatArray, costs: FloatArray) -> FloatArray:  # (n_cells, n_actions)
    """The cost of each action in each cell, for the rows that have its score."""
    known = cells[:, FIRST_ACTION + len(costs) :]
    found: FloatArray = (known if known.size else cells[:, [WEIGHT]]) * costs
    return found


def _with_scores(cells: FloatArray, scores: FloatArray) -> FloatArray:
    changed = cells.copy()
    changed[:, FIRST_ACTION : FIRST_ACTION + scores.shape[1]] = scores
    return changed
