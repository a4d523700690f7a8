"""The mixture for the client that loses most: mirror ascent on client regrets (Mohri et al. 2019).

This is a game. One side chooses weights λ, the other side the best policy for them. A client's
weight grows with its regret under that policy. The average of the weights approaches the weights at
which even the best policy leaves the most regret. A policy drawn from all steps leaves no client
with more regret than that.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import FederationError
from fedopl.results.mixture_search import MinimaxSearch, Step
from fedopl.results.sums.any_mixture import Solved, Statistics, ValuedStatistics, solve_for
from fedopl.server.mixtures.value_queries import ValueQueries
from fedopl.study.mixture import Weights

# Regrets of a policy by client, on training rows.
Regrets = Callable[[Solved], Mapping[str, float]]


@dataclass(frozen=True, kw_only=True)
class Ascent:
    """How far and how fast to climb. A spread is the largest gap of two regrets in one step."""

    most_steps: int = 200
    step_size: float | None = None  # default: √(8·log(1/min λ₁)/T) over the largest spread
    tolerance: float = 0.05  # stop at this gap, as a part of the largest spread


def minimax_weights(
    statistics: Statistics, start: Weights, regrets: Regrets, ascent: Ascent
) -> MinimaxSearch:
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
        found = _known_regrets(regrets, statistics, weights)
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
    found = _known_regrets(regrets, statistics, averaged)
    last = [] if found is None else [Step(weights=averaged, regrets=found, gap=trace[-1].gap)]
    best = min([*last, *trace], key=lambda step: step.largest)
    return MinimaxSearch(
        averaged=averaged,
        weights=best.weights,
        regrets=best.regrets,
        trace=tuple(trace),
        converged=converged,
    )


def regrets_at_hand(statistics: ValuedStatistics) -> Regrets:
    """A function for regrets against each client's best policy, on training rows.

    It asks no client.
    """
    best = {
        name: statistics.value(name, solve_for(statistics, {name: 1.0}))
        for name in statistics.clients
    }

    def regrets(policy: Solved) -> Mapping[str, float]:
        return {name: best[name] - statistics.value(name, policy) for name in best}

    return regrets


def regrets_by_asking(statistics: Statistics, values: ValueQueries) -> Regrets:
    """A function for regrets against the policy of each client's own sums.

    It asks clients once for every policy. `values` must ask about training rows: rows that weights
    were chosen on are no longer held out.
    """
    names = statistics.clients
    own = values.value([[solve_for(statistics, {name: 1.0})] for name in names])
    best = {name: one.value({name: 1.0}).value for name, (one,) in zip(names, own, strict=True)}

    def regrets(policy: Solved) -> Mapping[str, float]:
        ((one,),) = values.value([[policy]])
        answered = [name for name in names if name in one.answers]
        return {name: best[name] - one.value({name: 1.0}).value for name in answered}

    return regrets


def _known_regrets(
    regrets: Regrets, statistics: Statistics, weights: Weights
) -> dict[str, float] | None:
    """The regrets of the policy for these weights; None unless all clients' regrets are known."""
    found = regrets(solve_for(statistics, weights))
    known = all(math.isfinite(found.get(name, math.nan)) for name in weights)
    return {name: float(found[name]) for name in sorted(weights)} if known else None


def _softmax(names: list[str], logs: FloatArray) -> Weights:
    odds = np.exp(logs - logs.max())  # at most one, so there is no overflow
    return {name: float(share) for name, share in zip(names, odds / odds.sum(), strict=True)}
