"""What would have been learned without each fold, from sums that clients reported."""

from fedopl.policies.by_fold import ByFold
from fedopl.results.spending.solved_at import policy_at
from fedopl.results.sums.statistics_by_fold import StatisticsByFold
from fedopl.server.aggregate.setting import Setting, best_of_arms
from fedopl.study.mixture import renormalised


def learn_by_fold(setting: Setting, price: float = 0.0) -> ByFold:
    """One policy for each fold, learned from the other folds of all clients; no client is asked.

    With a price on what the budget of the study is about. Trees were learned together with the one
    of all rows.
    """
    if setting.trees_by_fold and not price:
        return ByFold(tree.policy for tree in setting.trees_by_fold)
    statistics = statistics_by_fold(setting)
    weights = renormalised(setting.weights, statistics.clients)
    return ByFold(policy_at(own, weights, price, setting.study) for own in statistics.each)


def statistics_by_fold(setting: Setting) -> StatisticsByFold:
    """What clients reported about the rows outside each fold, to solve for other policies from."""
    trees = tuple(tree.statistics for tree in setting.trees_by_fold)
    return StatisticsByFold(trees or tuple(setting.without_each_fold))


def arms_by_fold(setting: Setting, without: str | None = None) -> list[str]:
    """For each fold, the arm that came out best in the other folds of all clients, or but one."""
    weights = renormalised(setting.weights, (setting.by_fold or {}).keys())
    return [
        best_of_arms(
            setting.study,
            statistics.arm_values_without(weights, without)
            if without in weights
            else statistics.arm_values(weights),
        )
        for statistics in setting.without_each_fold
    ]
