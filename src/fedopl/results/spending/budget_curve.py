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
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.policy import Policy
from fedopl.results.spending.weighed_curve import CURVE_ROUNDING, ClientCurve, WeighedCurve
from fedopl.study.mixture import Weights, renormalised
from fedopl.study.spending.budget_plan import Budget

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


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """An alternative within a budget that does not depend on contexts."""

    name: str
    action: str
    share: float  # of people who get the action by lot; the others get what costs least
    gain: Estimate
    spending: Estimate


@dataclass(frozen=True, kw_only=True)
class BudgetCurve:
    """The reports of all clients, in their mixture."""

    prices: tuple[float, ...]  # rising from zero
    actions: tuple[str, ...]
    against: str  # the action for everybody that gains are over
    clients: dict[str, ClientCurve]
    mixture: Weights  # of those who told
    in_steps: bool = False  # whether there are policies at these prices alone, as with trees
    names: tuple[str, ...] = ()  # of the candidates at these prices, where they are candidates

    def at(self, budget: float, client: str = GLOBAL, *, plan: Budget | None = None) -> BudgetPoint:
        """The lowest price at which spending keeps to the budget, with its gain and spending.

        The plan says how surely, and what to do between two prices.
        """
        if not (math.isfinite(budget) and budget > 0):
            raise OptionError(f"budget: expected a number above 0, came {budget:g}")
        curve, plan = self._of(client), plan or _PLAIN
        if self.in_steps:
            plan = plan.model_copy(update={"between": "cheaper"})
        price = curve.price_for(budget, plan)
        if price is None:
            spent = curve.estimate(self.prices[-1], (0.0, 1.0))
            raise FederationError(
                f"budget: {budget:g} cannot be met: even at the highest price the policy spends "
                f"{spent.value:.4g} per decision, with a standard error of "
                f"{spent.standard_error:.2g}; allow more, or be less sure (confidence)"
            )
        return self._point(price, budget, client, plan.confidence)

    def _point(self, price: float, budget: float, client: str, confidence: float) -> BudgetPoint:
        curve = self._of(client)
        spending = curve.estimate(price, (0.0, 1.0))
        error, is_sure = spending.standard_error, spending.value <= budget * (1 + CURVE_ROUNDING)
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
            dearer=curve.dearer_than(price, in_steps=self.in_steps),
            candidate=self.names[self.prices.index(price)] if self.names else None,
        )

    def price_for(self, plan: Budget) -> float:
        """The price of one policy within the budget, at each client too if the plan says so."""
        where = sorted(self.clients) if plan.is_per_client else [GLOBAL]
        return max(self.at(plan.limit, name, plan=plan).price for name in where)

    def within(self, plan: Budget) -> BudgetPoint:
        """The gain and spending of that policy at all clients together."""
        return self._point(self.price_for(plan), plan.limit, GLOBAL, plan.confidence)

    def along(self, client: str = GLOBAL) -> list[tuple[float, Estimate]]:
        """The curve: spending at every price, and the gain if exactly that is the budget."""
        curve = self._of(client)
        spent = dict.fromkeys(curve.spending[: len(self.prices)][::-1].tolist())
        return [(budget, curve.at_fixed(budget)) for budget in spent]

    def alternatives(self, budget: float, client: str = GLOBAL) -> list[Alternative]:
        """One action for everybody that the budget affords, and the best one to draw lots for."""
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
        """Budgets and gains of drawing lots for the action with the largest gain for its cost."""
        arms = self._of(GLOBAL).arms
        _, cheapest = arms[self.actions.index(self.against)]
        rates = [(gain / (cost - cheapest), gain, cost) for gain, cost in arms if cost > cheapest]
        if not rates or max(rates)[0] <= 0:
            return []
        rate, _, cost = max(rates)
        end = min(cost, budget)
        return [(cheapest, 0.0), (end, rate * (end - cheapest))]

    def affordable(self, plan: Budget) -> list[str]:
        """The actions that could be given to everybody, at each client if the plan says so."""
        found = list(self.actions)
        for name in sorted(self.clients) if plan.is_per_client else [GLOBAL]:
            arms = dict(zip(self.actions, self._of(name).arms, strict=True))
            found = [action for action in found if arms[action][1] <= plan.limit]
        return found

    def done(self, client: str = GLOBAL) -> tuple[Estimate, Estimate]:
        """The logging policy: its gain over the same action for everybody, and its spending."""
        curve, place = self._of(client), len(self.prices) + len(self.actions)
        return curve.estimate_at(place, (1.0, 0.0)), curve.estimate_at(place, (0.0, 1.0))

    def _of(self, client: str) -> WeighedCurve:
        if client == GLOBAL:
            return self._together
        if client not in self.clients:
            raise OptionError(
                f"client: '{client}' reported nothing about prices; there are "
                f"{quoted(sorted(self.clients))}"
            )
        return WeighedCurve(self.prices, self.clients, {client: 1.0})

    @cached_property
    def _together(self) -> WeighedCurve:
        return WeighedCurve(
            self.prices, self.clients, renormalised(self.mixture, self.clients.keys())
        )


def _times(estimate: Estimate, share: float) -> Estimate:
    return replace(
        estimate, value=share * estimate.value, standard_error=share * estimate.standard_error
    )


def at_price(policy: LinearPolicy, price: float, spent: FloatArray) -> LinearPolicy:
    """The policy with a price on its spending: θ_a − μ·c_a, again a linear policy."""
    parameters = np.array(policy.parameters)
    n_features = spent.shape[1] - 1
    parameters[:, :n_features] -= price * spent[:, :-1]
    parameters[:, -1] -= price * spent[:, -1]
    return replace(policy, parameters=parameters)
