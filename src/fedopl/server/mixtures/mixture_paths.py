"""Paths of mixtures: ever more weight for one client (Section 7's α), and what it brings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedopl.base.errors import OptionError
from fedopl.base.estimates import Estimate
from fedopl.server.mixtures.any_statistics import AnyStatistics, solve
from fedopl.server.mixtures.valued_groups import Ask, Valued, value_groups
from fedopl.study import mixture
from fedopl.study.mixture import Weights, renormalised
from fedopl.theory.skew import skewness

ALPHAS = (0.1, 0.25, 0.5, 0.75, 1.0)
ANCHOR = 0  # the place of the policy for α = 0 in every answer


@dataclass(frozen=True, eq=False, kw_only=True)
class PathPoint:
    """One mixture λ(α) on the way to a client, and what its policy is worth on held-out rows."""

    alpha: float
    weights: Weights
    skewness: float  # 𝔰(λ‖n̄)
    effective_rows: float  # n/𝔰
    at_target: Estimate  # Q̂_t(π_λ)
    in_base: Estimate  # Q̂_n̄(π_λ)
    target_gain: Estimate  # over the policy for α = 0, paired
    base_gain: Estimate


@dataclass(frozen=True, eq=False, kw_only=True)
class SkewPath:
    """From the empirical mixture toward one client."""

    target: str
    points: tuple[PathPoint, ...]  # the first has α = 0

    @property
    def cannot_tell(self) -> bool:
        """Whether no mixture on the path differs from the first: all paired intervals hold 0."""
        gains = [gain for point in self.points for gain in (point.target_gain, point.base_gain)]
        return all(low <= 0 <= high for low, high in (gain.interval() for gain in gains))

    @property
    def best_for_target(self) -> PathPoint:
        """The point of the largest held-out value at the target; of equals, the least skewed."""
        return max(self.points, key=lambda point: point.target_gain.value)

    @property
    def chosen(self) -> PathPoint:
        """The best for the target if it shows to gain (one-sided, at 95 %), else the first.

        Weight that does not show to help is better left where the rows are.
        """
        best = self.best_for_target
        return best if best.target_gain.interval(0.9)[0] > 0 else self.points[0]

    @property
    def verdict(self) -> str:
        """What the path shows, in one plain sentence."""
        if self.cannot_tell:
            return f"The data cannot tell apart the mixtures from n̄ to {self.target} alone."
        surely = [point for point in self.points if point.target_gain.interval()[0] > 0]
        if surely:
            best = max(surely, key=lambda point: point.target_gain.value)
            gain = best.target_gain
            return f"More weight helps {self.target}: at α = {best.alpha:g} it gains {gain}."
        if any(point.target_gain.interval()[1] < 0 for point in self.points):
            return f"More weight on its own rows makes the policy worse for {self.target}."
        if any(point.base_gain.interval()[1] < 0 for point in self.points):
            return (
                f"More weight for {self.target} costs all together, and does not show to help it."
            )
        return f"More weight for {self.target} shows to help all together, but not it."


def skew_paths(
    statistics: AnyStatistics,
    rows: Mapping[str, int],
    targets: Sequence[str],
    ask: Ask,
    *,
    most: int,
    alphas: Sequence[float] = ALPHAS,
) -> dict[str, SkewPath]:
    """Solve and value λ(α) = n̄ + ε̄ for every target and α, by target.

    The policy for α = 0, which all paths share, comes in every query.
    """
    if any(not 0 < alpha <= 1 for alpha in alphas) or not alphas:
        raise OptionError("alphas: expected numbers above 0 and at most 1; 0 is always there")
    grid = [0.0, *sorted(set(alphas))]
    steps = [(target, alpha) for target in targets for alpha in grid]
    shares = [mixture.skewed(target, alpha).weights(rows) for target, alpha in steps]
    policies = [solve(statistics, weights) for weights in shares]
    groups = [[policy] for policy in policies]
    valued = [one for (one,) in value_groups(ask, groups, most=most, anchor=policies[0])]
    points: dict[str, list[PathPoint]] = {target: [] for target in targets}
    for (target, alpha), weights, one in zip(steps, shares, valued, strict=True):
        base = renormalised(shares[0], one.answers.keys() & rows.keys())
        points[target].append(_point(target, rows, base, weights, alpha, one))
    return {name: SkewPath(target=name, points=tuple(found)) for name, found in points.items()}


def _point(
    target: str,
    rows: Mapping[str, int],
    base: Weights,
    weights: Weights,
    alpha: float,
    valued: Valued,
) -> PathPoint:
    skew = skewness(weights, rows)
    return PathPoint(
        alpha=alpha,
        weights=weights,
        skewness=skew,
        effective_rows=sum(rows.values()) / skew,
        at_target=valued.value({target: 1.0}),
        in_base=valued.value(base),
        target_gain=valued.gain({target: 1.0}, ANCHOR),
        base_gain=valued.gain(base, ANCHOR),
    )
