"""Policies solved from statistics, at a price of what the study's budget is about."""

from fedopl.policies.policy import Policy
from fedopl.results.spending.budget_curve import at_price
from fedopl.results.spending.priced_trees import tree_at
from fedopl.results.sums.any_mixture import Solved, Statistics
from fedopl.results.sums.finite_statistics import FiniteStatistics
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.results.sums.tree_statistics import TreeStatistics
from fedopl.study.mixture import Weights
from fedopl.study.study import Study


def solved_at(statistics: Statistics, weights: Weights, price: float, study: Study) -> Solved:
    """The policy for these weights, with a price on what it spends if there is a budget."""
    if isinstance(statistics, FiniteStatistics):
        return statistics.solve_at(weights, price)
    if isinstance(statistics, ScoreStatistics | TreeStatistics):
        return policy_at(statistics, weights, price, study)
    return statistics.solve(weights)


def policy_at(
    statistics: ScoreStatistics | TreeStatistics, weights: Weights, price: float, study: Study
) -> Policy:
    """The policy for these weights, with a price on what it spends if there is a budget."""
    if study.budget is None:
        return statistics.solve(weights)
    spent = study.budget.spent(study)
    if isinstance(statistics, TreeStatistics):
        return tree_at(statistics, weights, price, spent[:, -1])
    return at_price(statistics.solve(weights), price, spent)
