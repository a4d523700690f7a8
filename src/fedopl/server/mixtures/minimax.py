"""The mixture for the client that loses most: mirror ascent on client regrets (Mohri et al. 2019).

A game: one side picks weights λ, the other the best policy for them. A client's weight grows by the
regret that policy leaves it with. The weights' average approaches those for which even the best
policy leaves as much regret as can be; policies drawn from all steps leave nobody with more.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import FederationError, OptionError
from fedopl.policies.tree import TreePolicy
from fedopl.results.mixture_search import MinimaxSearch, Step
from fedopl.results.sums.any_mixture import Solved, Statistics, solve_for
from fedopl.results.sums.finite_statistics import FiniteStatistics
from fedopl.results.sums.tree_statistics import TreeStatistics
from fedopl.results.sums.tree_values import tree_value
from fedopl.server.mixtures.valued_groups import Ask, value_groups
from fedopl.study.mixture import Weights

Regrets = Callable[[Solved], Mapping[str, float]]


def minimax_weights(
    statistics: Statistics,
    start: Weights,
    regrets: Regrets,
    *,
    step_size: float | None = None,
    most_steps: int = 200,
    tolerance: float = 0.05,
) -> MinimaxSearch:
    """λ_{t+1,c} ∝ λ_{t,c}·exp(η·regret_c(π_{λ_t})), from `start`, and the average of all λ_t.

    The gap is max_c mean_t regret_c(π_t) − mean_t Σ_c λ_{t,c}·regret_c(π_t), which no-regret
    learning brings to 0. It stops where that is at most `tolerance` times the largest difference
    between two clients' regrets in one step. Unless given, the step size is √(8·log(1/min λ₁)/T)
    over that difference.

    What solves the game is a lottery over the policies of all steps. As one policy is wanted, it is
    the one that leaves the client that loses most with the least regret, and never more than that
    of `start` does, on the rows that regrets are from. Where somebody's regret is not told any
    more, the ascent ends with the steps so far.
    """
    names = _checked(start, most_steps)
    logs = np.log([start[name] for name in names])
    reach = math.sqrt(-8 * float(logs.min()) / most_steps)
    trace: list[Step] = []
    all_felt, all_weighed, spread = np.zeros(len(names)), 0.0, 0.0
    converged = False
    while len(trace) < most_steps and not converged:
        weights = _softmax(names, logs)
        found = _told(regrets, statistics, weights)
        if found is None:
            break
        felt = np.array([found[name] for name in names])
        spread = max(spread, float(np.ptp(felt)))
        all_felt += felt
        all_weighed += sum(weights[name] * found[name] for name in names)
        gap = float(all_felt.max() - all_weighed) / (len(trace) + 1)
        step = Step(weights=weights, regrets=found, gap=gap)
        trace.append(step)
        converged = step.gap <= tolerance * spread
        if step_size is None:
            logs = logs + felt * (reach / spread if spread > 0 else 0.0)
        else:
            logs = logs + felt * step_size
    if not trace:
        raise FederationError("minimax: not everybody's regret is known, not even at first")
    averaged = {name: math.fsum(s.weights[name] for s in trace) / len(trace) for name in names}
    found = _told(regrets, statistics, averaged)
    last = [] if found is None else [Step(weights=averaged, regrets=found, gap=trace[-1].gap)]
    best = min([*last, *trace], key=lambda step: step.largest)
    return MinimaxSearch(
        averaged=averaged,
        weights=best.weights,
        regrets=best.regrets,
        trace=tuple(trace),
        converged=converged,
    )


def regrets_by_asking(statistics: Statistics, ask: Ask, *, most: int) -> Regrets:
    """Regret against the policy of each client's own sums, one query for every policy.

    To be asked of training rows: held-out ones that weights were chosen by are held out no more.
    """
    names = statistics.clients
    own = [[solve_for(statistics, {name: 1.0})] for name in names]
    valued = value_groups(ask, own, most=most)
    best = {name: one.value({name: 1.0}).value for name, (one,) in zip(names, valued, strict=True)}

    def regrets(policy: Solved) -> Mapping[str, float]:
        ((one,),) = value_groups(ask, [[policy]], most=1)
        told = [name for name in names if name in one.answers]
        return {name: best[name] - one.value({name: 1.0}).value for name in told}

    return regrets


def regrets_from_cells(statistics: TreeStatistics) -> Regrets:
    """Regret against each client's best tree, on training rows; nobody is asked anything."""
    best = {
        name: _value_at(statistics, name, solve_for(statistics, {name: 1.0}))
        for name in statistics.clients
    }

    def regrets(policy: Solved) -> Mapping[str, float]:
        return {name: best[name] - _value_at(statistics, name, policy) for name in best}

    return regrets


def regrets_of_candidates(statistics: FiniteStatistics) -> Regrets:
    """Regret against each client's best candidate, on training rows; nobody is asked anything."""
    best = {name: float(means.max()) for name, means in statistics.means.items()}

    def regrets(policy: Solved) -> Mapping[str, float]:
        return {name: best[name] - statistics.value(name, str(policy)) for name in best}

    return regrets


def _value_at(statistics: TreeStatistics, client: str, policy: Solved) -> float:
    if not isinstance(policy, TreePolicy):
        raise OptionError("policy: expected a tree")
    n_actions = statistics.study.n_actions
    return tree_value(statistics.cells[client], statistics.grid, n_actions, policy.root)


def _told(regrets: Regrets, statistics: Statistics, weights: Weights) -> dict[str, float] | None:
    """The regrets of the policy for these weights; None unless they are known of everybody."""
    found = regrets(solve_for(statistics, weights))
    known = all(math.isfinite(found.get(name, math.nan)) for name in weights)
    return {name: float(found[name]) for name in sorted(weights)} if known else None


def _softmax(names: list[str], logs: FloatArray) -> Weights:
    odds = np.exp(logs - logs.max())
    return {name: float(share) for name, share in zip(names, odds / odds.sum(), strict=True)}


def _checked(start: Weights, most_steps: int) -> list[str]:
    if len(start) < 2 or min(start.values()) <= 0 or most_steps < 1:
        raise OptionError(
            "minimax: expected at least one step, and two clients or more with weights above 0"
        )
    return sorted(start)
