"""Value against budget: gain and spending of policies at prices, and the best within a budget.

A policy at a price μ decides by argmax_a τ_a(x) − μ·c_a(x). The higher the price, the less it
spends, so each budget has a price. The gains at all prices form the Qini curve for many actions
(Sverdrup, Wu, Athey & Wager, 2025), here from clients' means at public prices.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import FederationError, OptionError
from fedopl.base.estimates import Estimate
from fedopl.base.labels import GLOBAL, quoted
from fedopl.policies.policy import Policy
from fedopl.study.mixture import Weights, renormalised
from fedopl.study.spending import Budget

# What is estimated of a point: a combination of its gain and its cost.
_GAIN, _COST = (1.0, 0.0), (0.0, 1.0)
# Slopes use this many prices to either side: between neighbours few rows change their decision.
_BESIDE = 2
_BOUNDLESS = 1_000_000  # degrees of freedom of what has no noise
# If all changes between two prices happen at one of them, spending is off the line by half a step
# on average; its neighbours then have smaller steps.
_BY_BENDING = 4.0
# A drop of more than this many times the drop beside it, and its error, counts as a jump.
_JUMP = 2.0
_ROUNDING = 1e-9
_HALVINGS = 40
_PLAIN = Budget(most=1.0)  # as sure as the estimate is, and between prices if need be


@dataclass(frozen=True, kw_only=True)
class BudgetPoint:
    """The best policy within one budget, for all clients or at one of them."""

    client: str  # or "(all clients)"
    budget: float
    confidence: float
    price: float  # of a unit of cost, in the outcome's unit
    spending: Estimate  # of the policy at that price
    gain: Estimate  # of the same policy, over one action for everybody
    at_budget: Estimate  # the gain if just the budget were spent, whatever price that takes
    one_more: float  # what one more unit of budget would bring
    chance_over: float  # that more is spent than the budget, by the error of spending
    dearer: float | None = None  # what the next policy spends, where there is none between
    policy: Policy | None = None  # at that price
    candidate: str | None = None  # its name, where candidates are compared

    @property
    def is_binding(self) -> bool:
        """Whether a larger budget would be spent as well."""
        return self.price > 0

    def named(self, otherwise: str) -> str:
        """The candidate, or what the policy is called if there are none."""
        return otherwise if self.candidate is None else f"'{self.candidate}'"


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """An alternative within a budget that does not depend on contexts."""

    action: str
    share: float | None  # of people who get the action by lot, others what costs least; or all do
    gain: Estimate
    spending: Estimate


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


@dataclass(frozen=True, kw_only=True)
class BudgetCurve:
    """The reports of all clients, in their mixture: at each price, of each action, of the past."""

    prices: tuple[float, ...]  # rising from zero
    actions: tuple[str, ...]
    against: str  # the action for everybody that gains are over
    clients: dict[str, ClientCurve]
    mixture: Weights  # of those who told
    in_steps: bool = False  # whether there are policies at these prices alone, as with trees
    names: tuple[str, ...] = ()  # of the candidates at these prices, where they are candidates

    def of(self, client: str) -> "BudgetCurve":
        """The curve at one client, or of all."""
        if client == GLOBAL:
            return self
        if client not in self.clients:
            raise OptionError(
                f"client: '{client}' reported nothing about prices; there are "
                f"{quoted(sorted(self.clients))}"
            )
        return replace(self, clients={client: self.clients[client]}, mixture={client: 1.0})

    def where(self, plan: Budget) -> list["BudgetCurve"]:
        """Where a budget is to hold: at each client, or for all together."""
        return [self.of(name) for name in sorted(self.clients)] if plan.is_per_client else [self]

    def at(self, budget: float, client: str = GLOBAL, *, plan: Budget = _PLAIN) -> BudgetPoint:
        """The lowest price at which spending keeps to the budget, with its gain and spending.

        The plan says how surely, and what to do between two prices.
        """
        if not (math.isfinite(budget) and budget > 0):
            raise OptionError(f"budget: expected a number above 0, came {budget:g}")
        curve = self.of(client)
        point = curve._point(curve._price_within(budget, plan), budget, plan.confidence)
        return replace(point, client=client)

    def price_for(self, plan: Budget) -> float:
        """The price of one policy within the budget, at each client too if the plan says so."""
        return max(one._price_within(plan.limit, plan) for one in self.where(plan))

    def within(self, plan: Budget) -> BudgetPoint:
        """The gain and spending of that policy at all clients together."""
        return self._point(self.price_for(plan), plan.limit, plan.confidence)

    def along(self) -> list[tuple[float, Estimate]]:
        """The curve: spending at every price, and the gain if exactly that is the budget."""
        spent = dict.fromkeys(self._spending[: len(self.prices)][::-1].tolist())
        return [(budget, self._at_fixed(budget)) for budget in spent]

    def alternatives(self, budget: float) -> list[Alternative]:
        """One action for everybody that the budget affords, and the best one to draw lots for."""
        cheapest = self._arms[self.against][1]
        found: list[Alternative] = []
        lots: list[Alternative] = []
        for place, (action, (_, cost)) in enumerate(self._arms.items(), len(self.prices)):
            gain, spent = self._estimate_at(place, _GAIN), self._estimate_at(place, _COST)
            if cost <= budget:
                found.append(Alternative(action=action, share=None, gain=gain, spending=spent))
            elif cost > cheapest and budget > cheapest:
                share = (budget - cheapest) / (cost - cheapest)
                spent = replace(_times(spent, share), value=budget)
                gain = _times(gain, share)
                lots.append(Alternative(action=action, share=share, gain=gain, spending=spent))
        best = [max(some, key=lambda one: one.gain.value) for some in (found, lots) if some]
        return [one for one in best if one.action != self.against or len(best) == 1]

    def lots_to(self, budget: float) -> list[tuple[float, float]]:
        """Budgets and gains of drawing lots for the action with the largest gain for its cost."""
        _, cheapest = self._arms[self.against]
        arms = [(gain, cost) for gain, cost in self._arms.values() if cost > cheapest]
        rate, cost = max(
            ((gain / (cost - cheapest), cost) for gain, cost in arms), default=(0.0, 0.0)
        )
        end = min(cost, budget)
        return [(cheapest, 0.0), (end, rate * (end - cheapest))] if rate > 0 else []

    def affordable(self, plan: Budget) -> list[str]:
        """The actions that could be given to everybody, at each client if the plan says so."""
        curves = self.where(plan)
        return [a for a in self.actions if all(own._arms[a][1] <= plan.limit for own in curves)]

    def done(self) -> tuple[Estimate, Estimate]:
        """The logging policy: its gain over the same action for everybody, and its spending."""
        last = len(self.prices) + len(self.actions)
        return self._estimate_at(last, _GAIN), self._estimate_at(last, _COST)

    # --- the clients' reports in their mixture ---------------------------------------------------

    @cached_property
    def _parts(self) -> list[tuple[float, ClientCurve]]:
        shares = renormalised(self.mixture, self.clients.keys())
        return [(shares[name], self.clients[name]) for name in sorted(shares)]

    @cached_property
    def _gains(self) -> FloatArray:  # (n_points,)
        return self._mixed([own.gains for _, own in self._parts])

    @cached_property
    def _spending(self) -> FloatArray:  # (n_points,)
        """At a higher price no row costs more; a rise can only be noise."""
        costs, n_prices = self._mixed([own.costs for _, own in self._parts]), len(self.prices)
        return np.concatenate([_falling(costs[:n_prices]), costs[n_prices:]])

    def _mixed(self, told: list[tuple[float, ...]]) -> FloatArray:
        return np.asarray(np.array([weight for weight, _ in self._parts]) @ np.array(told))

    @cached_property
    def _arms(self) -> dict[str, tuple[float, float]]:
        """Gain and cost of every action for everybody."""
        rest = slice(len(self.prices), -1)
        pairs = zip(self._gains[rest].tolist(), self._spending[rest].tolist(), strict=True)
        return dict(zip(self.actions, pairs, strict=True))

    # --- prices ----------------------------------------------------------------------------------

    def _point(self, price: float, budget: float, confidence: float) -> BudgetPoint:
        spending = self._estimate(price, _COST)
        error, is_sure = spending.standard_error, spending.value <= budget * (1 + _ROUNDING)
        over = 1 - NormalDist(spending.value, error).cdf(budget) if error else 1.0 - is_sure
        return BudgetPoint(
            client=GLOBAL,
            budget=budget,
            confidence=confidence,
            price=price,
            spending=spending,
            gain=self._estimate(price, _GAIN),
            at_budget=self._at_fixed(budget),
            one_more=self._slope(price) if price > 0 else 0.0,
            chance_over=over,
            dearer=self._dearer_than(price),
            candidate=self.names[self.prices.index(price)] if self.names else None,
        )

    def _price_within(self, budget: float, plan: Budget) -> float:
        """The lowest price at which spending, plus a margin for its error, keeps to the budget.

        Between two prices of the grid, spending is taken to fall linearly, unless it jumps there.
        """
        errors = NormalDist().inv_cdf(plan.confidence)
        place = self._first_within(budget, errors)
        if place is None:
            spent = self._estimate(self.prices[-1], _COST)
            raise FederationError(
                f"budget: {budget:g} cannot be met: even at the highest price the policy spends "
                f"{spent.value:.4g} per decision, with a standard error of "
                f"{spent.standard_error:.2g}; allow more, or be less sure (confidence)"
            )
        if plan.between == "cheaper" or self._is_step(place):
            return self.prices[place]
        return self._on_line(budget, errors, place)

    def _first_within(self, budget: float, errors: float) -> int | None:
        """The first of the prices at which the budget is kept."""
        kept = (place for place, at in enumerate(self.prices) if self._keeps(at, budget, errors))
        return next(kept, None)

    def _keeps(self, price: float, budget: float, errors: float) -> bool:
        """Whether spending at a price, with so many of its errors, is within the budget."""
        spent = self._estimate(price, _COST)
        return spent.value + errors * spent.standard_error <= budget * (1 + _ROUNDING)

    def _is_step(self, place: int) -> bool:
        """Whether no price between this one and the one before gives a policy in between.

        So it is where many equal rows change their decision. The sign is a drop in spending that is
        large beside the drops at neighbouring prices, and larger than noise.
        """
        steps = -np.diff(self._spending[: len(self.prices)])
        if self.in_steps or not place:
            return place > 0
        beside = [steps[one] for one in (place - 2, place) if 0 <= one < len(steps)]
        error = self._estimate_at(place, _COST).standard_error
        return bool(steps[place - 1] > _JUMP * max(min(beside, default=0.0), error))

    def _on_line(self, budget: float, errors: float, place: int) -> float:
        """The lowest price up to this one, if spending falls linearly from the one before."""
        if place == 0:
            return self.prices[0]
        low, high = self.prices[place - 1], self.prices[place]
        for _ in range(_HALVINGS):  # with the error of lying between two prices
            middle = (low + high) / 2
            keeps = self._keeps(middle, budget, errors)
            low, high = (low, middle) if keeps else (middle, high)
        return high

    def _dearer_than(self, price: float) -> float | None:
        """The spending at the price before, if there is no policy between the two."""
        if price not in self.prices or not self._is_step(place := self.prices.index(price)):
            return None
        return float(self._spending[place - 1])

    def _slope(self, price: float) -> float:
        """The gain of one more unit of spending: the slope of the curve at a price."""
        place = int(np.searchsorted(self.prices, price))
        first, last = max(place - 1 - _BESIDE, 0), min(place + _BESIDE, len(self.prices) - 1)
        spent = float(self._spending[first] - self._spending[last])
        return float(self._gains[first] - self._gains[last]) / spent if spent > 0 else 0.0

    def _at_fixed(self, budget: float) -> Estimate:
        """The gain if exactly the budget is spent.

        The price is estimated as well, so the error is that of g − s·c, with s the curve's slope.
        """
        place = self._first_within(budget, 0.0)
        price = self.prices[-1] if place is None else self._on_line(budget, 0.0, place)
        fixed = self._estimate(price, (1.0, -self._slope(price)))
        return replace(fixed, value=self._estimate(price, _GAIN).value)

    def _estimate(self, price: float, contrast: tuple[float, float]) -> Estimate:
        """A combination of gain and cost at a price, interpolated linearly between grid prices.

        Its distance from the line is judged by the curvature there: how far spending may lie from
        it if equal rows decide together.
        """
        above = min(int(np.searchsorted(self.prices, price)), len(self.prices) - 1)
        if self.prices[above] == price:
            return self._estimate_at(above, contrast)
        width = self.prices[above] - self.prices[above - 1]
        share = (self.prices[above] - price) / width
        upper, lower = (self._estimate_at(place, contrast) for place in (above, above - 1))
        error = share * lower.standard_error + (1 - share) * upper.standard_error
        steps = np.diff(self._spending[max(above - 2, 0) : min(above + 2, len(self.prices))])
        bends = float(np.ptp(steps)) / _BY_BENDING
        off = bends * abs(contrast[1] + contrast[0] * self._slope(price))
        return replace(
            upper,
            value=share * lower.value + (1 - share) * upper.value,
            standard_error=math.hypot(error, off),
        )

    def _estimate_at(self, place: int, contrast: tuple[float, float]) -> Estimate:
        """The combination at a grid price, with Welch & Satterthwaite's degrees of freedom."""
        gain, cost = contrast
        parts = [own for _, own in self._parts]
        variances = [
            weight**2 * max(gain**2 * v[0] + 2 * gain * cost * v[1] + cost**2 * v[2], 0.0)
            for weight, own in self._parts
            for v in [own.variances[place]]
        ]
        total = math.fsum(variances)
        spread = math.fsum(
            variance**2 / max(part.degrees_of_freedom, 1e-9)
            for variance, part in zip(variances, parts, strict=True)
        )
        return Estimate(
            value=float(gain * self._gains[place] + cost * self._spending[place]),
            standard_error=math.sqrt(total),
            n_rows=sum(part.n_rows for part in parts),
            of_rows=sum(part.of_rows for part in parts),
            degrees_of_freedom=int(total**2 / spread * (1 + 1e-9)) if spread > 0 else _BOUNDLESS,
        )


def _times(estimate: Estimate, share: float) -> Estimate:
    return replace(
        estimate, value=share * estimate.value, standard_error=share * estimate.standard_error
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
