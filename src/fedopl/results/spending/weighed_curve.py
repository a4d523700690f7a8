"""Clients' reports about prices, in a mixture: spending, gains, slopes, and prices of budgets."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.estimates import Estimate
from fedopl.study.spending.budget_plan import Budget

# Slopes use this many prices to either side: between neighbours few rows change their decision.
_BESIDE = 2
_BOUNDLESS = 1_000_000  # degrees of freedom of what has no noise
# If all changes between two prices happen at one of them, spending is off the line by half a step
# on average; its neighbours then have smaller steps.
_BY_BENDING = 4.0
# A drop of more than this many times the drop beside it, and its error, counts as a jump.
_JUMP = 2.0
CURVE_ROUNDING = 1e-9
_HALVINGS = 40


@dataclass(frozen=True, kw_only=True)
class ClientCurve:
    """One client's report: policies at prices, every action for everybody, and what was done."""

    n_rows: int
    of_rows: int
    degrees_of_freedom: int
    gains: tuple[float, ...]  # over the same action for everybody
    costs: tuple[float, ...]
    # Covariances: of each gain, of gain with cost, and of the cost.
    variances: tuple[tuple[float, float, float], ...]

    def at_places(self, places: Sequence[int]) -> "ClientCurve":
        """The report on the policies at these places alone, in this order."""
        return replace(
            self,
            gains=tuple(self.gains[place] for place in places),
            costs=tuple(self.costs[place] for place in places),
            variances=tuple(self.variances[place] for place in places),
        )


class WeighedCurve:
    """The curve of some clients in a mixture."""

    def __init__(
        self,
        prices: tuple[float, ...],
        clients: Mapping[str, ClientCurve],
        weights: Mapping[str, float],
    ) -> None:
        names = sorted(weights)
        self._parts = [clients[name] for name in names]
        self._weights = np.array([weights[name] for name in names])
        self._prices, self._n_prices = np.array(prices), len(prices)
        self.gains = self._weights @ np.array([part.gains for part in self._parts])
        costs = self._weights @ np.array([part.costs for part in self._parts])
        # At a higher price no row costs more; a rise can only be noise.
        self.spending = np.concatenate([_falling(costs[: self._n_prices]), costs[self._n_prices :]])

    @property
    def arms(self) -> list[tuple[float, float]]:
        """Gain and cost of every action for everybody."""
        rest = slice(self._n_prices, -1)
        return list(zip(self.gains[rest].tolist(), self.spending[rest].tolist(), strict=True))

    def price_for(self, budget: float, plan: Budget) -> float | None:
        """The lowest price at which spending, plus a margin for its error, keeps to the budget.

        Between two prices of the grid, spending is taken to fall linearly, unless it jumps there.
        """
        errors = NormalDist().inv_cdf(plan.confidence)
        place = self._first_within(budget, errors)
        if place is not None and (plan.between == "cheaper" or self.jumps_below(place)):
            return float(self._prices[place])
        return None if place is None else self._on_line(budget, errors, place)

    def _first_within(self, budget: float, errors: float) -> int | None:
        """The first of the prices at which the budget is kept."""
        reached = np.array(
            [self.spending[place] + errors * self._error(place) for place in range(self._n_prices)]
        )
        kept = np.flatnonzero(reached <= budget * (1 + CURVE_ROUNDING))
        return int(kept[0]) if len(kept) else None

    def _error(self, place: int) -> float:
        """The error of spending at a price of the grid."""
        return self.estimate_at(place, (0.0, 1.0)).standard_error

    def jumps_below(self, place: int) -> bool:
        """Whether many equal rows change their decision between this price and the one before.

        Then no price in between gives a policy in between. The sign is a drop in spending that is
        large beside the drops at neighbouring prices, and larger than noise.
        """
        steps = -np.diff(self.spending[: self._n_prices])
        beside = [steps[one] for one in (place - 2, place) if 0 <= one < len(steps)]
        return bool(
            place
            and steps[place - 1] > _JUMP * min(beside, default=0.0)
            and steps[place - 1] > _JUMP * self._error(place)
        )

    def _on_line(self, budget: float, errors: float, place: int) -> float:
        """The lowest price up to this one, if spending falls linearly from the one before."""
        if place == 0:
            return float(self._prices[0])
        low, high = float(self._prices[place - 1]), float(self._prices[place])
        for _ in range(_HALVINGS):  # with the error of lying between two prices
            middle = (low + high) / 2
            spent = self.estimate(middle, (0.0, 1.0))
            keeps = spent.value + errors * spent.standard_error <= budget * (1 + CURVE_ROUNDING)
            low, high = (low, middle) if keeps else (middle, high)
        return high

    def dearer_than(self, price: float, *, in_steps: bool) -> float | None:
        """The spending at the price before, if there is no policy between the two."""
        place = int(np.searchsorted(self._prices, price))
        is_step = place < self._n_prices and self._prices[place] == price
        is_step = is_step and place > 0 and (in_steps or self.jumps_below(place))
        return float(self.spending[place - 1]) if is_step else None

    def slope(self, price: float) -> float:
        """The gain of one more unit of spending: the slope of the curve at a price."""
        place = int(np.searchsorted(self._prices, price))
        first, last = max(place - 1 - _BESIDE, 0), min(place + _BESIDE, self._n_prices - 1)
        spent = float(self.spending[first] - self.spending[last])
        return float(self.gains[first] - self.gains[last]) / spent if spent > 0 else 0.0

    def at_fixed(self, budget: float) -> Estimate:
        """The gain if exactly the budget is spent.

        The price is estimated as well, so the error is that of g − s·c, with s the curve's slope.
        """
        place = self._first_within(budget, 0.0)
        price = float(self._prices[-1]) if place is None else self._on_line(budget, 0.0, place)
        fixed = self.estimate(price, (1.0, -self.slope(price)))
        return replace(fixed, value=self.estimate(price, (1.0, 0.0)).value)

    def estimate(self, price: float, contrast: tuple[float, float]) -> Estimate:
        """A combination of gain and cost at a price, interpolated linearly between grid prices.

        Its distance from the line is judged by the curvature there.
        """
        above = min(int(np.searchsorted(self._prices, price)), self._n_prices - 1)
        if self._prices[above] == price:
            return self.estimate_at(above, contrast)
        width = self._prices[above] - self._prices[above - 1]
        share = float((self._prices[above] - price) / width)
        upper, lower = (self.estimate_at(place, contrast) for place in (above, above - 1))
        error = share * lower.standard_error + (1 - share) * upper.standard_error
        off = self._bends(above) * abs(contrast[1] + contrast[0] * self.slope(price))
        return replace(
            upper,
            value=share * lower.value + (1 - share) * upper.value,
            standard_error=math.hypot(error, off),
        )

    def _bends(self, above: int) -> float:
        """How far spending below this price may lie from a line, if equal rows decide together."""
        first, last = max(above - 2, 0), min(above + 1, self._n_prices - 1)
        steps = -np.diff(self.spending[first : last + 1])
        return float(np.ptp(steps)) / _BY_BENDING

    def estimate_at(self, place: int, contrast: tuple[float, float]) -> Estimate:
        """The combination at a grid price, with Welch & Satterthwaite's degrees of freedom."""
        gain, cost = contrast
        variances = [
            weight**2 * max(gain**2 * v[0] + 2 * gain * cost * v[1] + cost**2 * v[2], 0.0)
            for weight, part in zip(self._weights.tolist(), self._parts, strict=True)
            for v in [part.variances[place]]
        ]
        total = math.fsum(variances)
        spread = math.fsum(
            variance**2 / max(part.degrees_of_freedom, 1e-9)
            for variance, part in zip(variances, self._parts, strict=True)
        )
        return Estimate(
            value=float(gain * self.gains[place] + cost * self.spending[place]),
            standard_error=math.sqrt(total),
            n_rows=sum(part.n_rows for part in self._parts),
            of_rows=sum(part.of_rows for part in self._parts),
            degrees_of_freedom=int(total**2 / spread * (1 + 1e-9)) if spread > 0 else _BOUNDLESS,
        )


def _falling(numbers: FloatArray) -> FloatArray:
    """The nearest numbers that never rise: neighbours that do are averaged (PAVA)."""
    blocks: list[tuple[float, int]] = []
    for number in numbers.tolist():
        mean, size = float(number), 1
        while blocks and blocks[-1][0] < mean:
            before, n_before = blocks.pop()
            mean, size = (before * n_before + mean * size) / (n_before + size), n_before + size
        blocks.append((mean, size))
    return np.concatenate([np.full(size, mean) for mean, size in blocks])
