"""What would have been learned without each fold, from sums that clients reported."""

from fedopl.policies.policy import Policy
from fedopl.results.spending.budget_curve import at_price
from fedopl.server.aggregate.setting import Setting, best_of_arms
from fedopl.server.oracles import tree_search
from fedopl.study.mixture import Weights, renormalised


def learn_by_fold(setting: Setting, price: float = 0.0) -> list[Policy]:
    """One policy for each fold, learned from the other folds of all clients; no client is asked.

    With a price on what the budget of the study is about. Trees were learned together with the one
    of all rows.
    """
    if setting.trees_by_fold:
        return tree_search.trees_at_price(setting.trees_by_fold, setting, price)
    policies = [
        statistics.solve(weights)
        for statistics, weights in zip(setting.without_each_fold, _weights(setting), strict=True)
    ]
    budget = setting.study.budget
    if budget is None:
        return [*policies]
    return [at_price(policy, price, budget.spent(setting.study)) for policy in policies]


def arms_by_fold(setting: Setting) -> list[str]:
    """For each fold, the arm that came out best in the other folds of all clients."""
    return [
        best_of_arms(setting.study, statistics.arm_values(weights))
        for statistics, weights in zip(setting.without_each_fold, _weights(setting), strict=True)
    ]


def _weights(setting: Setting) -> list[Weights]:
    """The mixture without each fold, over clients with sums by fold."""
    names = (setting.by_fold or {}).keys()
    folds = range(setting.study.nuisances.folds)
    return [renormalised(setting.weights_without(fold), names) for fold in folds]
