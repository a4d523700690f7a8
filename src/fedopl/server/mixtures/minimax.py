"""The mixture for the client that loses most: mirror ascent on client regrets (Mohri et al. 2019).

This is a game. One side chooses weights λ, the other side the best policy for them. A client's
weight grows with its regret under that policy. The average of the weights approaches the weights at
which even the best policy leaves the most regret. A policy drawn from all steps leaves no client
with more regret than that.
"""

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import FederationError
from fedopl.results.mixture_search import MinimaxSearch, Step
from fedopl.results.sums.any_mixture import Solved, Statistics, ValuedStatistics, solve_for
from fedopl.server.mixtures.value_queries import (
    AskTogether,
    Batched,
    Fold,
    Valued,
    value_together,
)
from fedopl.study.mixture import Weights

# Regrets by client, on training rows.
Regrets = Mapping[str, float]
# Regrets under the policies of several folds.
RegretsUnder = Callable[[Mapping[Fold, Solved]], Mapping[Fold, Regrets]]
# An ascent yields policies, and is sent the regrets under each.
Climb = Generator[Solved, Regrets, MinimaxSearch]


@dataclass(frozen=True, kw_only=True)
class Ascent:
    """How far and how fast to climb. A spread is the largest gap of two regrets in one step."""

    most_steps: int = 200
    step_size: float | None = None  # default: √(8·log(1/min λ₁)/T) over the largest spread
    tolerance: float = 0.05  # stop at this gap, as a part of the largest spread


def minimax_weights(
    statistics: Mapping[Fold, Statistics],
    starts: Mapping[Fold, Weights],
    regrets: RegretsUnder,
    ascent: Ascent,
) -> dict[Fold, MinimaxSearch]:
    """The weights by an ascent without each fold. All ascents make each step together."""
    climbs = {fold: _climb(own, starts[fold], ascent) for fold, own in statistics.items()}
    policies = {fold: next(one) for fold, one in climbs.items()}
    found: dict[Fold, MinimaxSearch] = {}
    while policies:
        for fold, told in regrets(policies).items():
            try:
                policies[fold] = climbs[fold].send(told)
            except StopIteration as end:
                found[fold] = end.value
                del policies[fold]
    return found


def _climb(statistics: Statistics, start: Weights, ascent: Ascent) -> Climb:
    """λ_{t+1,c} ∝ λ_{t,c}·exp(η·regret_c(π_{λ_t})), from `start`, and the average of all λ_t.

    The gap is max_c mean_t regret_c(π_t) − mean_t Σ_c λ_{t,c}·regret_c(π_t). No-regret learning
    brings it to 0.

    A random choice among the policies of all steps solves the game. The study needs one policy. So
    the result is the policy under which the largest regret of any client is smallest. On the rows
    of the regrets, this is never more than under the policy of `start`. If a client stops reporting
    its regret, the ascent ends with the steps so far.
    """
    names = sorted(start)
    logs = np.log([start[name] for name in names])
    reach = math.sqrt(-8 * float(logs.min()) / ascent.most_steps)
    trace: list[Step] = []
    summed, weighted, spread = np.zeros(len(names)), 0.0, 0.0
    converged = False
    while len(trace) < ascent.most_steps and not converged:
        weights = _softmax(names, logs)
        found = _if_all_known((yield solve_for(statistics, weights)), weights)
        if found is None:
            break
        now = np.array([found[name] for name in names])
        spread = max(spread, float(np.ptp(now)))
        summed += now
        weighted += sum(weights[name] * found[name] for name in names)
        gap = float(summed.max() - weighted) / (len(trace) + 1)
        trace.append(Step(weights=weights, regrets=found, gap=gap))
        converged = gap <= ascent.tolerance * spread
        step_size = ascent.step_size
        if step_size is None:
            step_size = reach / spread if spread > 0 else 0.0
        logs = logs + now * step_size
    if not trace:
        raise FederationError(
            "minimax: some client's regret is not known, even of the first policy"
        )
    averaged = {name: math.fsum(s.weights[name] for s in trace) / len(trace) for name in names}
    found = _if_all_known((yield solve_for(statistics, averaged)), averaged)
    last = [] if found is None else [Step(weights=averaged, regrets=found, gap=trace[-1].gap)]
    best = min([*last, *trace], key=lambda step: step.largest)
    return MinimaxSearch(
        averaged=averaged,
        weights=best.weights,
        regrets=best.regrets,
        trace=tuple(trace),
        converged=converged,
    )


def regrets_at_hand(statistics: Mapping[Fold, ValuedStatistics]) -> RegretsUnder:
    """A function for regrets against each client's best policy, without each fold.

    It asks no client.
    """
    best = {
        fold: {name: own.value(name, solve_for(own, {name: 1.0})) for name in own.clients}
        for fold, own in statistics.items()
    }

    def regrets(policies: Mapping[Fold, Solved]) -> Mapping[Fold, Regrets]:
        return {
            fold: {n: worth - statistics[fold].value(n, policy) for n, worth in best[fold].items()}
            for fold, policy in policies.items()
        }

    return regrets


def regrets_by_asking(
    statistics: Mapping[Fold, Statistics], ask: AskTogether, most: int
) -> RegretsUnder:
    """A function for regrets against the policy of each client's own sums, without each fold.

    It asks clients for all policies at once. `ask` must be about training rows: rows that weights
    were chosen on are no longer held out.
    """
    alone = {
        fold: [[solve_for(own, {name: 1.0})] for name in own.clients]
        for fold, own in statistics.items()
    }
    valued = value_together({f: Batched.of(groups, most) for f, groups in alone.items()}, ask)
    best = {
        fold: {n: _value_at(n, one) for n, (one,) in zip(own.clients, valued[fold], strict=True)}
        for fold, own in statistics.items()
    }

    def regrets(policies: Mapping[Fold, Solved]) -> Mapping[Fold, Regrets]:
        batched = {fold: Batched.of([[policy]], most) for fold, policy in policies.items()}
        return {
            fold: {n: best[fold][n] - _value_at(n, one) for n in best[fold] if n in one.answers}
            for fold, ((one,),) in value_together(batched, ask).items()
        }

    return regrets


def _value_at(client: str, policy: Valued) -> float:
    return policy.value({client: 1.0}).value


def _if_all_known(regrets: Regrets, weights: Weights) -> dict[str, float] | None:
    """The regrets of the clients with weight, sorted; None unless all of them are known."""
    known = all(math.isfinite(regrets.get(name, math.nan)) for name in weights)
    return {name: float(regrets[name]) for name in sorted(weights)} if known else None


def _softmax(names: list[str], logs: FloatArray) -> Weights:
    odds = np.exp(logs - logs.max())  # at most one, so there is no overflow
    return {name: float(share) for name, share in zip(names, odds / odds.sum(), strict=True)}
