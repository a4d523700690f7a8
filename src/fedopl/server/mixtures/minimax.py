"""The mixture for the client that loses most: mirror ascent on client regrets (Mohri et al. 2019).

A game: one side picks weights λ, the other the best policy for them. A client's weight grows by the
regret that policy leaves it with. The weights' average approaches those for which even the best
policy leaves as much regret as can be; policies drawn from all steps leave nobody with more.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.base.errors import FederationError, OptionError
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.grid import Grid
from fedopl.policies.trees.nodes import Branch, Leaf, Node
from fedopl.policies.trees.search import FIRST_ACTION, WEIGHT
from fedopl.server.mixtures.any_statistics import AnyStatistics, Solved, clients_of, solve
from fedopl.server.mixtures.finite_statistics import FiniteStatistics
from fedopl.server.mixtures.valued_groups import Ask, value_groups
from fedopl.server.oracles.tree_search import TreeStatistics
from fedopl.study.mixture import Weights

Regrets = Callable[[Solved], Mapping[str, float]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Step:
    """One step of the ascent."""

    weights: Weights  # λ_t
    regrets: dict[str, float]  # of the best policy for them, by client
    gap: float  # how far from a solution of the game all steps so far are on average

    @property
    def largest(self) -> float:
        """The regret of the client that loses most."""
        return max(self.regrets.values())


@dataclass(frozen=True, eq=False, kw_only=True)
class Minimax:
    """What the ascent came to."""

    averaged: Weights  # of all λ_t: what they approach
    weights: Weights  # those, of all λ_t and their average, whose policy leaves the least regret
    regrets: dict[str, float]  # of the policy for them, by client
    trace: tuple[Step, ...]
    converged: bool

    @property
    def largest(self) -> float:
        """The regret of the client that loses most."""
        return max(self.regrets.values())

    @property
    def at_least(self) -> float:
        """No policy and no lottery over policies leaves everybody with less regret than this.

        So where policies are best for their weights: for trees, and not quite for linear ones.
        """
        sums = [sum(s.weights[n] * s.regrets[n] for n in s.weights) for s in self.trace]
        return max(sums)


def minimax_weights(
    statistics: AnyStatistics,
    start: Weights,
    regrets: Regrets,
    *,
    step_size: float | None = None,
    most_steps: int = 200,
    tolerance: float = 0.05,
) -> Minimax:
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
    return Minimax(
        averaged=averaged,
        weights=best.weights,
        regrets=best.regrets,
        trace=tuple(trace),
        converged=converged,
    )


def regrets_by_asking(statistics: AnyStatistics, ask: Ask, *, most: int) -> Regrets:
    """Regret against the policy of each client's own sums, one query for every policy.

    To be asked of training rows: held-out ones that weights were chosen by are held out no more.
    """
    names = clients_of(statistics)
    own = [[solve(statistics, {name: 1.0})] for name in names]
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
        name: _value_at(statistics, name, solve(statistics, {name: 1.0}))
        for name in clients_of(statistics)
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


def tree_value(cells: FloatArray, grid: Grid, n_actions: int, root: Node) -> float:
    """The mean score of what a tree of depth two at most decides, from one client's cells.

    Rows without a score for it are left out, as they are where held-out rows are valued.
    """
    total = rests_on = 0.0
    for leaf, numbers in _leaves(cells, grid, root):
        total += numbers[FIRST_ACTION + leaf.action]
        known = FIRST_ACTION + n_actions + leaf.action
        rests_on += numbers[known if known < len(numbers) else WEIGHT]
    return total / rests_on if rests_on > 0 else math.nan


def _leaves(cells: FloatArray, grid: Grid, root: Node) -> list[tuple[Leaf, FloatArray]]:
    """Every leaf with the sums over its rows, (n_numbers,)."""
    if isinstance(root, Leaf):
        return [(root, grid.line(cells, 0).sum(axis=0))]
    found: list[tuple[Leaf, FloatArray]] = []
    for yes, below in ((True, root.yes), (False, root.no)):
        first = _says(grid, root, yes=yes)
        if isinstance(below, Leaf):
            found.append((below, grid.line(cells, root.column)[first].sum(axis=0)))
            continue
        table = grid.table(cells, root.column, below.column)[first].sum(axis=0)
        for answer, leaf in ((True, below.yes), (False, below.no)):
            if not isinstance(leaf, Leaf):
                raise OptionError("tree: cells of two columns tell values of depth two at most")
            found.append((leaf, table[_says(grid, below, yes=answer)].sum(axis=0)))
    return found


def _says(grid: Grid, split: Branch, *, yes: bool) -> BoolArray:  # (n_bins,)
    """The bins of those who give this answer."""
    places = np.arange(grid.n_bins[split.column])
    cut = grid.cuts[split.column].index(split.cut)
    said = places == cut if grid.is_level[split.column] else places <= cut
    return said if yes else ~said


def _told(regrets: Regrets, statistics: AnyStatistics, weights: Weights) -> dict[str, float] | None:
    """The regrets of the policy for these weights; None unless they are known of everybody."""
    found = regrets(solve(statistics, weights))
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
