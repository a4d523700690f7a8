"""The mixture for the client that loses most: mirror ascent on client regrets (Mohri et al. 2019).

A game: one side picks weights λ, the other the best policy for them. A client's weight grows by the
regret that policy leaves it with. The weights' average approaches those for which even the best
policy leaves as much regret as can be; policies drawn from all steps leave nobody with more.
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
    """How far and how fast to climb; spreads are between two clients' regrets in one step."""

    most_steps: int = 200
    step_size: float | None = None  # √(8·log(1/min λ₁)/T) over the largest spread, unless given
    tolerance: float = 0.05  # the gap to end at, as a part of the largest spread


def minimax_weights(
    statistics: Statistics, start: Weights, regrets: Regrets, ascent: Ascent
) -> MinimaxSearch:
    """λ_{t+1,c} ∝ λ_{t,c}·exp(η·regret_c(π_{λ_t})), from `start`, and the average of all λ_t.

    The gap is max_c mean_t regret_c(π_t) − mean_t Σ_c λ_{t,c}·regret_c(π_t), which no-regret
    learning brings to 0.

    What solves the game is a lottery over the policies of all steps. As one policy is wanted, it is
    the one that leaves the client that loses most with the least regret, and never more than that
    of `start` does, on the rows that regrets are from. Where somebody's regret is not reported any
    more, the ascent ends with the steps so far.
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
        raise FederationError("minimax: not everybody's regret is known, not even at first")
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
    """Regret against each client's best policy, on training rows; no client is asked."""
    best = {
        name: statistics.value(name, solve_for(statistics, {name: 1.0}))
        for name in statistics.clients
    }

    def regrets(policy: Solved) -> Mapping[str, float]:
        return {name: best[name] - statistics.value(name, policy) for name in best}

    return regrets


def regrets_by_asking(statistics: Statistics, values: ValueQueries) -> Regrets:
    """Regret against the policy of each client's own sums, one query for every policy.

    To be asked of training rows: held-out ones that weights were chosen by are held out no more.
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
    """The regrets of the policy for these weights; None unless they are known of everybody."""
    found = regrets(solve_for(statistics, weights))
    known = all(math.isfinite(found.get(name, math.nan)) for name in weights)
    return {name: float(found[name]) for name in sorted(weights)} if known else None


def _softmax(names: list[str], logs: FloatArray) -> Weights:
    odds = np.exp(logs - logs.max())  # at most one, so that nothing overflows
    return {name: float(share) for name, share in zip(names, odds / odds.sum(), strict=True)}
