"""What would have been learned without each fold, from sums that clients reported."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from fedopl.policies.policy import ByFold
from fedopl.results.spending.priced_policies import solved_at
from fedopl.results.sums.finite_statistics import FiniteStatistics
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.results.sums.tree_statistics import TreeStatistics
from fedopl.server.aggregate.setting import Setting, best_of_arms
from fedopl.study.mixture import Weights, renormalised


@dataclass(frozen=True, eq=False)
class StatisticsByFold:
    """What clients reported about the rows outside each fold, in the order of folds."""

    each: tuple[ScoreStatistics | TreeStatistics | FiniteStatistics, ...]

    @property
    def clients(self) -> list[str]:
        """The clients that reported about every fold."""
        return sorted(set.intersection(*(set(own.clients) for own in self.each)))

    def restricted(self, names: Collection[str]) -> Self:
        """The statistics of these clients alone."""
        return type(self)(tuple(own.restricted(names) for own in self.each))

    def solve(self, weights: Weights) -> ByFold:
        """For each fold, the best policy for these weights without it."""
        return ByFold(own.solve(weights) for own in self.each)

    def solve_contrast(self, signed: Mapping[str, float]) -> ByFold:
        """For each fold, the policy that maximises this contrast without it."""
        return ByFold(own.solve_contrast(signed) for own in self.each)


def learn_by_fold(setting: Setting, price: float = 0.0) -> ByFold:
    """One policy for each fold, learned from the other folds of all clients; no client is asked.

    With a price on what the budget of the study is about. Trees were learned together with the one
    of all rows, and so were candidates chosen, by name.
    """
    if setting.trees_by_fold and not price:
        return ByFold(tree.policy for tree in setting.trees_by_fold)
    return solved_by_fold(statistics_by_fold(setting), setting, price)


def solved_by_fold(statistics: StatisticsByFold, setting: Setting, price: float) -> ByFold:
    """One policy for each fold, for the mixture without it of the clients of these statistics."""
    weights = _weights(setting, statistics.clients)
    pairs = zip(statistics.each, weights, strict=True)
    each = (solved_at(own, mixture, price, setting.study) for own, mixture in pairs)
    return ByFold(one for one in each if not isinstance(one, ByFold))


def statistics_by_fold(setting: Setting) -> StatisticsByFold:
    """What clients reported about the rows outside each fold, to solve for other policies from."""
    trees = [tree.statistics for tree in setting.trees_by_fold]
    return StatisticsByFold((*(trees or setting.choices_by_fold or setting.without_each_fold),))


def arms_by_fold(setting: Setting, without: str | None = None) -> list[str]:
    """For each fold, the arm that came out best in the other folds of all clients, or but one."""
    weights = _weights(setting, (setting.by_fold or {}).keys())
    return [
        best_of_arms(
            setting.study,
            statistics.arm_values_without(mixture, without)
            if without in mixture
            else statistics.arm_values(mixture),
        )
        for statistics, mixture in zip(setting.without_each_fold, weights, strict=True)
    ]


def _weights(setting: Setting, clients: Iterable[str]) -> list[Weights]:
    """The mixture without each fold, over these clients."""
    folds, names = range(setting.study.nuisances.folds), list(clients)
    return [renormalised(setting.weights_without(fold), names) for fold in folds]
