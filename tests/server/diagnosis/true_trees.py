"""What is true of trees on a grid in `small_worlds`, without drawing a row.

Contexts are independent Gaussians and rewards linear in them, so that the probability of every cell
and the mean of every action's reward in it have closed forms. Searched as clients' sums are, these
cells give the best tree of the class, for any mixture and any contrast.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm

from fedopl.results.sums.tree_statistics import TreeStatistics, tree_value

PLENTY = 1e12  # of rows, so that no leaf has too few


def true_cells(truth, grid):  # (n_cells, 2 + n_actions)
    """Rows, probability, and E[1{X in the cell}·μ(X; a)] for every action."""
    chances, firsts = [], []
    for mean, cuts in zip(truth.context_mean, grid.cuts, strict=True):
        edges = np.array([-np.inf, *cuts, np.inf]) - mean
        chances.append(np.diff(norm.cdf(edges)))
        firsts.append(mean * chances[-1] - np.diff(norm.pdf(edges)))  # E[1{X in the bin}·X]
    cells = np.zeros((grid.n_cells, 2 + len(truth.slopes)))
    for (first, second), place in grid.tables.items():
        alone = first == second
        other = np.ones(1) if alone else chances[second]
        chance = np.outer(chances[first], other).ravel()
        means = [mean * chance for mean in truth.context_mean]
        means[first] = np.outer(firsts[first], other).ravel()
        if not alone:
            means[second] = np.outer(chances[first], firsts[second]).ravel()
        cells[place, :2] = np.column_stack([PLENTY * chance, chance])
        cells[place, 2:] = np.column_stack([*means, chance]) @ truth.slopes.T
    return cells


@dataclass(frozen=True, eq=False)
class TrueTrees:
    """The class of trees that a run searched, in the world it was drawn from."""

    statistics: TreeStatistics

    def value(self, policy, signed):
        """Σ_c s_c·Q_c(π)."""
        found = self.statistics
        return sum(
            sign * tree_value(found.cells[name], found.grid, found.study.n_actions, policy.root)
            for name, sign in signed.items()
            if sign
        )

    def best(self, signed):
        """The tree that is best for these weights, signed or not."""
        return self.statistics.solve_contrast(signed)

    def supremum(self, signed):
        """sup_π Σ_c s_c·Q_c(π)."""
        return self.value(self.best(signed), signed)

    def regret(self, policy, weights):
        """R_λ(π), against the best tree."""
        return self.supremum(weights) - self.value(policy, weights)


def true_trees(world, statistics):
    """What is true of the trees on the grid of these statistics."""
    cells = {name: true_cells(world.truths[name], statistics.grid) for name in statistics.cells}
    return TrueTrees(replace(statistics, cells=cells))


def deviation(world, statistics, weights):
    """sup |Δ_λ(π_a, π_b) − Δ̂_λ(π_a, π_b)| over the trees: how far scores are from the truth."""
    truth = true_trees(world, statistics).statistics.cells
    signed = {("seen", name): weight for name, weight in weights.items()}
    signed |= {("true", name): -weight for name, weight in weights.items()}
    cells = {("seen", name): statistics.cells[name] for name in weights}
    cells |= {("true", name): truth[name] for name in weights}
    both = TrueTrees(replace(statistics, cells=cells))
    return both.supremum(signed) + both.supremum({name: -sign for name, sign in signed.items()})
