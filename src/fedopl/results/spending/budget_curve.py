"""Value against budget: what a policy gains and spends at prices, and what is best within a budget.

A policy at a price μ decides by argmax_a τ_a(x) − μ·c_a(x). The higher the price, the less it
spends, so a budget has a price. What is gained at each is the Qini curve for many actions
(Sverdrup, Wu, Athey & Wager, 2025), here from clients' means at public prices.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import FederationError, OptionError
from fedopl.base.estimates import Estimate
from fedopl.base.labels import GLOBAL, quoted
from fedopl.policies.linear import LinearPolicy
from fedopl.study.mixture import Weights, renormalised
from fedopl.study.spending.budget_plan import Budget

# Slopes are taken over so many prices to either side: between neighbours few rows decide anew.
_BESIDE = 2
_BOUNDLESS = 1_000_000  # degrees of freedom of what has no noise
# Where all who decide anew between two prices do so at one of them, spending is off the line by
# half of a step on average; its neighbours then have smaller steps.
_BY_BENDING = 4.0
_ROUNDING = 1e-9
_HALVINGS = 40
_PLAIN = Budget(most=1.0)  # as sure as the estimate is, and between prices if need be


@dataclass(frozen=True, kw_only=True)
class ClientCurve:
    """What one client told: the policy at every price, then every action for everybody."""

    n_rows: int
    of_rows: int
    degrees_of_freedom: int
    gains: tuple[float, ...]  # over the same action for everybody
    costs: tuple[float, ...]
    # Of each gain, of it with its cost, and of the cost.
    variances: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True, kw_only=True)
class BudgetPoint:
    """What is best within one budget, for all clients or at one of them."""

    client: str  # or "(all clients)"
    budget: float
    confidence: float
    price: float  # of a unit of cost, in the outcome's unit
    spending: Estimate  # of the policy at that price
    gain: Estimate  # of the same policy, over one action for everybody
    at_budget: Estimate  # the gain if just the budget were spent, whatever price that takes
    one_more: float  # what one more unit of budget would bring
    chance_over: float  # that more is spent than the budget, by the error of spending
    policy: LinearPolicy | None = None  # at that price

    @property
    def is_binding(self) -> bool:
        """Whether more would be spent if more were allowed."""
        return self.price > 0


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """What else could be done within a budget, without looking at anybody."""

    name: str
    action: str
    share: float  # of people who get the action by lot; the others get what costs least
    gain: Estimate
    spending: Estimate


@dataclass(frozen=True, kw_only=True)
class BudgetCurve:
    """What all clients told, in their mixture."""

    prices: tuple[float, ...]  # rising from zero
    actions: tuple[str, ...]
    against: str  # the action for everybody that gains are over
    clients: dict[str, ClientCurve]
    mixture: Weights  # of those who told

    def at(self, budget: float, client: str = GLOBAL, *, plan: Budget | None = None) -> BudgetPoint:
        """The lowest price at which spending keeps to the budget, and what that comes to.

        The plan says how surely, and what to do between two prices.
        """
        if not (math.isfinite(budget) and budget > 0):
            raise OptionError(f"budget: expected a number above 0, came {budget:g}")
        curve, plan = self._of(client), plan or _PLAIN
        price = curve.price_for(budget, plan)
        if price is None:
            spent = curve.estimate(self.prices[-1], (0.0, 1.0))
            raise FederationError(
                f"budget: {budget:g} cannot be kept to: even at the highest price the policy "
                f"spends {spent.value:.4g} per decision, with a standard error of "
                f"{spent.standard_error:.2g}; allow more, or be less sure (confidence)"
            )
        return self._point(price, budget, client, plan.confidence)

    def _point(self, price: float, budget: float, client: str, confidence: float) -> BudgetPoint:
        curve = self._of(client)
        spending = curve.estimate(price, (0.0, 1.0))
        error, is_sure = spending.standard_error, spending.value <= budget * (1 + _ROUNDING)
        over = 1 - NormalDist(spending.value, error).cdf(budget) if error else 1.0 - is_sure
        return BudgetPoint(
            client=client,
            budget=budget,
            confidence=confidence,
            price=price,
            spending=spending,
            gain=curve.estimate(price, (1.0, 0.0)),
            at_budget=curve.at_fixed(budget),
            one_more=curve.slope(price) if price > 0 else 0.0,
            chance_over=over,
        )

    def price_for(self, plan: Budget) -> float:
        """The price of one policy that keeps to it, where it is to hold at each client, too."""
        where = sorted(self.clients) if plan.is_per_client else [GLOBAL]
        return max(self.at(plan.limit, name, plan=plan).price for name in where)

    def within(self, plan: Budget) -> BudgetPoint:
        """What that policy comes to at all clients together."""
        return self._point(self.price_for(plan), plan.limit, GLOBAL, plan.confidence)

    def along(self, client: str = GLOBAL) -> list[tuple[float, Estimate]]:
        """The curve: spending at every price, and the gain if just that is the budget."""
        curve = self._of(client)
        spent = dict.fromkeys(curve.spending[: len(self.prices)][::-1].tolist())
        return [(budget, curve.at_fixed(budget)) for budget in spent]

    def alternatives(self, budget: float, client: str = GLOBAL) -> list[Alternative]:
        """One action for everybody that the budget affords, and the best to draw lots for."""
        curve, n_prices = self._of(client), len(self.prices)
        cheapest = curve.arms[self.actions.index(self.against)][1]
        found: list[Alternative] = []
        lots: list[Alternative] = []
        for place, (action, (_, cost)) in enumerate(zip(self.actions, curve.arms, strict=True)):
            gain = curve.estimate_at(n_prices + place, (1.0, 0.0))
            spent = curve.estimate_at(n_prices + place, (0.0, 1.0))
            everybody = Alternative(
                name="everybody", action=action, share=1.0, gain=gain, spending=spent
            )
            if cost <= budget:
                found.append(everybody)
            elif cost > cheapest and budget > cheapest:
                share = (budget - cheapest) / (cost - cheapest)
                lots.append(
                    replace(
                        everybody,
                        name="by lot",
                        share=share,
                        gain=_times(gain, share),
                        spending=replace(_times(spent, share), value=budget),
                    )
                )
        best = [max(some, key=lambda one: one.gain.value) for some in (found, lots) if some]
        return [one for one in best if one.action != self.against or len(best) == 1]

    def lots_to(self, budget: float) -> list[tuple[float, float]]:
        """Budgets and gains of drawing lots for the action that brings most for what it costs."""
        arms = self._of(GLOBAL).arms
        _, cheapest = arms[self.actions.index(self.against)]
        rates = [(gain / (cost - cheapest), gain, cost) for gain, cost in arms if cost > cheapest]
        if not rates or max(rates)[0] <= 0:
            return []
        rate, _, cost = max(rates)
        end = min(cost, budget)
        return [(cheapest, 0.0), (end, rate * (end - cheapest))]

    def affordable(self, budget: float) -> list[str]:
        """The actions that everybody could be given."""
        arms = self._of(GLOBAL).arms
        return [
            action for action, (_, cost) in zip(self.actions, arms, strict=True) if cost <= budget
        ]

    def _of(self, client: str) -> "_Weighed":
        if client == GLOBAL:
            return self._together
        if client not in self.clients:
            raise OptionError(
                f"client: '{client}' told of no prices; there are {quoted(sorted(self.clients))}"
            )
        return _Weighed(self, {client: 1.0})

    @cached_property
    def _together(self) -> "_Weighed":
        return _Weighed(self, renormalised(self.mixture, self.clients.keys()))


class _Weighed:
    """The curve of some clients in a mixture."""

    def __init__(self, curve: BudgetCurve, weights: Mapping[str, float]) -> None:
        names = sorted(weights)
        self._parts = [curve.clients[name] for name in names]
        self._weights = np.array([weights[name] for name in names])
        self._prices, self._n_prices = np.array(curve.prices), len(curve.prices)
        self.gains = self._weights @ np.array([part.gains for part in self._parts])
        costs = self._weights @ np.array([part.costs for part in self._parts])
        # At a higher price no row costs more: only noise can say otherwise.
        self.spending = np.concatenate([_falling(costs[: self._n_prices]), costs[self._n_prices :]])

    @property
    def arms(self) -> list[tuple[float, float]]:
        """Gain and cost of every action for everybody."""
        rest = slice(self._n_prices, None)
        return list(zip(self.gains[rest].tolist(), self.spending[rest].tolist(), strict=True))

    def price_for(self, budget: float, plan: Budget) -> float | None:
        """The lowest price at which spending, and so much of its error, keeps to the budget.

        Between two prices of the grid spending is taken to fall evenly.
        """
        errors = NormalDist().inv_cdf(plan.confidence)
        reached = np.array(
            [
                self.spending[place] + errors * self.estimate_at(place, (0.0, 1.0)).standard_error
                for place in range(self._n_prices)
            ]
        )
        kept = np.flatnonzero(reached <= budget * (1 + _ROUNDING))
        if not len(kept):
            return None
        place = int(kept[0])
        if place == 0 or plan.between == "cheaper":
            return float(self._prices[place])
        low, high = float(self._prices[place - 1]), float(self._prices[place])
        for _ in range(_HALVINGS):  # with the error of lying between two prices
            middle = (low + high) / 2
            spent = self.estimate(middle, (0.0, 1.0))
            keeps = spent.value + errors * spent.standard_error <= budget * (1 + _ROUNDING)
            low, high = (low, middle) if keeps else (middle, high)
        return high

    def slope(self, price: float) -> float:
        """What a unit more of spending brings: the slope of the curve at a price."""
        place = int(np.searchsorted(self._prices, price))
        first, last = max(place - 1 - _BESIDE, 0), min(place + _BESIDE, self._n_prices - 1)
        spent = float(self.spending[first] - self.spending[last])
        return float(self.gains[first] - self.gains[last]) / spent if spent > 0 else 0.0

    def at_fixed(self, budget: float) -> Estimate:
        """The gain where just the budget is spent.

        The price is estimated, too, so its error is that of g − s·c, with s the curve's slope.
        """
        price = self.price_for(budget, _PLAIN)
        price = float(self._prices[-1]) if price is None else price
        fixed = self.estimate(price, (1.0, -self.slope(price)))
        return replace(fixed, value=self.estimate(price, (1.0, 0.0)).value)

    def estimate(self, price: float, contrast: tuple[float, float]) -> Estimate:
        """A combination of gain and cost at a price, on a line between those of the grid.

        How far from the line they may be is judged by how much it bends there.
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
        """How far spending may be from a line below this price, of rows that decide alike."""
        first, last = max(above - 2, 0), min(above + 1, self._n_prices - 1)
        steps = -np.diff(self.spending[first : last + 1])
        return float(np.ptp(steps)) / _BY_BENDING

    def estimate_at(self, place: int, contrast: tuple[float, float]) -> Estimate:
        """The same at a price of the grid, with Welch & Satterthwaite's degrees of freedom."""
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


def _times(estimate: Estimate, share: float) -> Estimate:
    return replace(
        estimate, value=share * estimate.value, standard_error=share * estimate.standard_error
    )


def at_price(policy: LinearPolicy, price: float, spent: FloatArray) -> LinearPolicy:
    """The policy with a price on what it spends: θ_a − μ·c_a, again a linear one."""
    parameters = np.array(policy.parameters)
    n_features = spent.shape[1] - 1
    parameters[:, :n_features] -= price * spent[:, :-1]
    parameters[:, -1] -= price * spent[:, -1]
    return replace(policy, parameters=parameters)
