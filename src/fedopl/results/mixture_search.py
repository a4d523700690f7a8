"""How a run found its mixture: along a path toward one client, or by minimax ascent."""

from dataclasses import dataclass

from fedopl.base.estimates import Estimate
from fedopl.base.tables import html_fields
from fedopl.study.mixture import Weights


@dataclass(frozen=True, eq=False, kw_only=True)
class PathPoint:
    """One mixture λ(α) on the path to a client, and the value of its policy on other rows."""

    alpha: float
    weights: Weights
    skewness: float  # 𝔰(λ‖n̄)
    effective_rows: float  # n/𝔰
    at_target: Estimate  # Q̂_t(π_λ), as outcomes were logged
    in_base: Estimate  # Q̂_n̄(π_λ), as outcomes were logged
    target_gain: Estimate  # over the policy for α = 0, paired
    base_gain: Estimate


@dataclass(frozen=True, eq=False, kw_only=True)
class SkewPath:
    """The path from the empirical mixture toward one client."""

    target: str
    points: tuple[PathPoint, ...]  # the first has α = 0

    def _repr_html_(self) -> str:
        return html_fields(vars(self))

    @property
    def cannot_tell(self) -> bool:
        """Whether no mixture on the path differs from the first: all paired intervals contain 0."""
        gains = [gain for point in self.points for gain in (point.target_gain, point.base_gain)]
        return all(low <= 0 <= high for low, high in (gain.interval() for gain in gains))

    @property
    def best_for_target(self) -> PathPoint:
        """The point with the largest value at the target; of equals, the least skewed."""
        return max(self.points, key=lambda point: point.target_gain.value)

    @property
    def chosen(self) -> PathPoint:
        """The best for the target if its gain is significant (one-sided, at 95 %), else the first.

        Weight that does not demonstrably help is better left where the rows are.
        """
        best = self.best_for_target
        return best if best.target_gain.interval(0.9)[0] > 0 else self.points[0]

    @property
    def weights(self) -> Weights:
        """The weights that were found."""
        return self.chosen.weights

    @property
    def verdict(self) -> str:
        """What the path shows, in one plain sentence."""
        if self.cannot_tell:
            return f"The data cannot show which mixture is best, from n̄ to {self.target} alone."
        surely = [point for point in self.points if point.target_gain.interval()[0] > 0]
        if surely:
            best = max(surely, key=lambda point: point.target_gain.value)
            gain = best.target_gain
            return f"More weight helps {self.target}: at α = {best.alpha:g} it gains {gain}."
        if any(point.target_gain.interval()[1] < 0 for point in self.points):
            return f"More weight on its own rows makes the policy worse for {self.target}."
        if any(point.base_gain.interval()[1] < 0 for point in self.points):
            return f"More weight for {self.target} costs all together, and is not shown to help it."
        return (
            f"More weight for {self.target} is shown to help all together, but not {self.target}."
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Step:
    """One step of the minimax ascent."""

    weights: Weights  # λ_t
    regrets: dict[str, float]  # of the best policy for them, by client
    gap: float  # how far from a solution of the game all steps so far are on average

    @property
    def largest(self) -> float:
        """The regret of the client that loses most."""
        return max(self.regrets.values())


@dataclass(frozen=True, eq=False, kw_only=True)
class MinimaxSearch:
    """The minimax ascent on clients' regrets: its steps, and the weights it found."""

    averaged: Weights  # of all λ_t: what they approach
    weights: Weights  # those, of all λ_t and their average, whose policy leaves the least regret
    regrets: dict[str, float]  # of the policy for them, by client
    trace: tuple[Step, ...]
    converged: bool

    def _repr_html_(self) -> str:
        return html_fields(vars(self))

    @property
    def largest(self) -> float:
        """The regret of the client that loses most."""
        return max(self.regrets.values())

    @property
    def at_least(self) -> float:
        """A lower bound on the largest regret under any policy, or lottery over policies.

        Exact if policies are optimal for their weights, as trees are; linear ones nearly are.
        """
        # The best policy for λ_t leaves the least Σ λ·R, and the largest R is at least that sum.
        return max(sum(s.weights[n] * s.regrets[n] for n in s.weights) for s in self.trace)


Search = SkewPath | MinimaxSearch
