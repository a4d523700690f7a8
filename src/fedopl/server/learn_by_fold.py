"""What would have been learned without each fold, from sums that clients reported."""

from collections.abc import Sequence

from fedopl.results.spending.budget_curve import at_price
from fedopl.results.sums.any_mixture import Solved
from fedopl.server.aggregate.setting import Setting, best_of_arms
from fedopl.study.mixture import renormalised


def learn_by_fold(setting: Setting, price: float = 0.0) -> Sequence[Solved]:
    """One policy for each fold, learned from the other folds of all clients; no client is asked.

    With a price on what the budget of the study is about. Trees were learned together with the one
    of all rows, and so were candidates chosen, by name.
    """
    if setting.led_to_by_fold:
        return setting.led_to_by_fold(price)
    weights = renormalised(setting.weights, (setting.by_fold or {}).keys())
    policies = [statistics.solve(weights) for statistics in setting.without_each_fold]
    budget = setting.study.budget
    if budget is None:
        return policies
    return [at_price(policy, price, budget.spent(setting.study)) for policy in policies]


def arms_by_fold(setting: Setting) -> list[str]:
    """For each fold, the arm that came out best in the other folds of all clients."""
    weights = renormalised(setting.weights, (setting.by_fold or {}).keys())
    return [
        best_of_arms(setting.study, statistics.arm_values(weights))
        for statistics in setting.without_each_fold
    ]
