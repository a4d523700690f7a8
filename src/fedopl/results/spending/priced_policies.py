"""Policies at a price of what they spend, solved from what clients reported once.

At a price μ the best policy maximises the mean of Γ(π) − μ·c(π). A linear policy then decides by
θ_aᵀφ − μ·c_a. Sums of trees follow from those of scores and the weight of each cell. Among
candidates, costs are from the rows that value them, and values from those that the choice uses: so
the gain of the chosen one is not the number that it was chosen by.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.search import FIRST_ACTION, WEIGHT
from fedopl.results.sums.any_mixture import Solved, Statistics
from fedopl.results.sums.finite_statistics import FiniteStatistics
from fedopl.results.sums.tree_statistics import TreeStatistics, mixed_cells, tree_value
from fedopl.study.mixture import Weights, renormalised
from fedopl.study.study import Study

_ROUNDING = 1e-9


def solved_at(statistics: Statistics, weights: Weights, price: float, study: Study) -> Solved:
    """The policy for these weights, with a price on what it spends if there is a budget."""
    if study.budget and isinstance(statistics, TreeStatistics):
        return tree_at(statistics, weights, price, study.budget.spent(study)[:, -1])
    if isinstance(statistics, FiniteStatistics) and statistics.costs:
        places, prices = corners(statistics.worth(weights), [*statistics.costs.values()])
        return [*statistics.costs][places[bisect_right(prices, price) - 1]]
    found = statistics.solve(weights)
    if study.budget and isinstance(found, LinearPolicy):
        return at_price(found, price, study.budget.spent(study))
    return found


def at_price(policy: LinearPolicy, price: float, spent: FloatArray) -> LinearPolicy:
    """The policy with a price on its spending: θ_a − μ·c_a, again a linear policy."""
    parameters = np.array(policy.parameters)
    n_features = spent.shape[1] - 1
    parameters[:, :n_features] -= price * spent[:, :-1]
    parameters[:, -1] -= price * spent[:, -1]
    return replace(policy, parameters=parameters)


# --- trees ------------------------------------------------------------------------------------


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
        name: _with_scores(own, _scores(own, len(costs)) - price * _spending(own, costs))
        for name, own in statistics.cells.items()
    }
    return replace(statistics, cells=cells).solve(weights)


def tree_path(
    statistics: TreeStatistics, weights: Weights, costs: FloatArray, most: int
) -> list[PricedTree]:
    """A few trees that are best at some price, by rising price and falling spending.

    They are corners of the upper hull of trees' spending and gains. Two neighbours are equally good
    at one price, and a tree between them is found there.
    """
    mixed = mixed_cells(statistics.cells, renormalised(weights, statistics.cells.keys()))
    spent, grid = _with_scores(mixed, _spending(mixed, costs)), statistics.grid

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
    falling: list[PricedTree] = []
    for one in sorted(path, key=lambda one: one.price):
        if not falling or one.spending < falling[-1].spending:
            falling.append(one)
    return falling


def _alike_at(dear: PricedTree, cheap: PricedTree) -> float | None:
    """The price at which two trees are equally good; None if it is not between their own."""
    saved = dear.spending - cheap.spending
    if not saved > _ROUNDING * abs(dear.spending):
        return None
    price = float(dear.gain - cheap.gain) / saved
    return price if dear.price < price < cheap.price and math.isfinite(price) else None


def _highest_price(cells: FloatArray, costs: FloatArray) -> float:
    """A price at which no dearer action is worth its cost in any cell."""
    weight = np.maximum(cells[:, [WEIGHT]], 1e-300)
    apart = np.ptp(_scores(cells, len(costs)) / weight, axis=1)[cells[:, WEIGHT] > 0]
    steps = np.diff(np.unique(costs))
    return 2.0 * float(apart.max(initial=0.0)) / float(steps.min(initial=np.inf)) or 1.0


def _scores(cells: FloatArray, n_actions: int) -> FloatArray:  # (n_cells, n_actions)
    return cells[:, FIRST_ACTION : FIRST_ACTION + n_actions]


def _spending(cells: FloatArray, costs: FloatArray) -> FloatArray:  # (n_cells, n_actions)
    """The cost of each action in each cell, for the rows that have its score."""
    known = cells[:, FIRST_ACTION + len(costs) :]
    found: FloatArray = (known if known.size else cells[:, [WEIGHT]]) * costs
    return found


def _with_scores(cells: FloatArray, scores: FloatArray) -> FloatArray:
    changed = cells.copy()
    changed[:, FIRST_ACTION : FIRST_ACTION + scores.shape[1]] = scores
    return changed


# --- candidates -------------------------------------------------------------------------------


def corners(
    values: Sequence[float], costs: Sequence[float]
) -> tuple[list[int], list[float]]:  # places of candidates, and prices
    """The candidates that are best at some price, and the lowest price of each, rising from zero.

    Among candidates of the same value, the cheaper one is taken, then the first.
    """
    now = min(range(len(values)), key=lambda k: (-values[k], costs[k], k))
    places, prices = [now], [0.0]
    least = _ROUNDING * max(map(abs, costs))
    while cheaper := [k for k in range(len(costs)) if costs[k] < costs[now] - least]:
        rates = {k: (values[now] - values[k]) / (costs[now] - costs[k]) for k in cheaper}
        now = min(cheaper, key=lambda k: (rates[k], costs[k], k))
        if rates[now] > prices[-1]:
            places.append(now)
            prices.append(rates[now])
        else:  # as good at the same price, and cheaper
            places[-1] = now
    return places, prices
