"""Statistics without each fold: what is solved for is a policy by fold."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Self

from fedopl.policies.policy import ByFold
from fedopl.results.sums.finite_statistics import FiniteStatistics
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.results.sums.tree_statistics import TreeStatistics
from fedopl.study.mixture import Weights


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
