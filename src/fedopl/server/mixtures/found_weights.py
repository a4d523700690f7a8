"""Weights that a run finds: by minimax, or on a path with more and more weight for one client.

If values are cross-fitted, they are found without each fold, and at last in all rows. Clients are
asked about all of these at once.
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from fedopl.base.errors import FederationError, OptionError
from fedopl.messages.evaluation.policy_fields import most_in_query
from fedopl.messages.evaluation.policy_values import Values
from fedopl.messages.message import RowSplit, kept_back
from fedopl.results.mixture_search import MinimaxSearch, PathPoint, Search, SkewPath, Step
from fedopl.results.sums.any_mixture import Solved, Statistics, ValuedStatistics, solve_for
from fedopl.results.sums.finite_statistics import FiniteStatistics
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.mixtures.value_queries import (
    ANCHOR,
    AskTogether,
    Batched,
    Fold,
    Valued,
    ValueQueries,
    asking_without,
    picking,
    value_together,
)
from fedopl.study import mixture
from fedopl.study.mixture import ALPHAS, BestSkew, Minimax, Weights, renormalised
from fedopl.theory.skew import skewness

Known = TypeVar("Known", bound=Statistics)
Searches = Mapping[Fold, Search]
# Regrets by client, on training rows.
Regrets = Mapping[str, float]
# Regrets under the policies of several folds.
RegretsUnder = Callable[[Mapping[Fold, Solved]], Mapping[Fold, Regrets]]
# An ascent yields policies, and is sent the regrets under each.
Ascent = Generator[Solved, Regrets, MinimaxSearch]
# An ascent stops at this gap, as a part of the largest gap of two regrets in one step.
LEAST_GAP = 0.05


def with_found(setting: Setting, searches: Searches) -> Setting:
    """The setting with the weights that were found; zero for clients outside a search."""
    if not searches:
        return setting

    def found(fold: Fold) -> Weights:
        if fold not in searches:
            return setting.weights
        return {name: searches[fold].weights.get(name, 0.0) for name in setting.weights}

    *folds, of_all = setting.study.left_out
    by_fold = [found(fold) for fold in folds]
    return replace(
        setting, weights=found(of_all), weights_by_fold=by_fold, found_from=setting.weights
    )


# --- by minimax -----------------------------------------------------------------------------------


def minimax_weights(
    statistics: Mapping[Fold, Statistics],
    weights: Weights,
    regrets: RegretsUnder,
    most_steps: int,
) -> dict[Fold, MinimaxSearch]:
    """The weights by an ascent without each fold. All ascents make each step together.

    This is mirror ascent on client regrets, in a game (Mohri et al. 2019). One side chooses
    weights λ, the other side the best policy for them. A client's weight grows with its regret
    under that policy. The average of the weights approaches the weights at which even the best
    policy leaves the most regret. A policy drawn from all steps leaves no client with more regret
    than that.
    """
    climbs = {fold: _ascent(own, weights, most_steps) for fold, own in statistics.items()}
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


def _ascent(statistics: Statistics, first: Weights, most_steps: int) -> Ascent:
    """λ_{t+1,c} ∝ λ_{t,c}·exp(η·regret_c(π_{λ_t})), from the first, and the average of all λ_t.

    The gap is max_c mean_t regret_c(π_t) − mean_t Σ_c λ_{t,c}·regret_c(π_t). No-regret learning
    brings it to 0.

    A random choice among the policies of all steps solves the game. The study needs one policy. So
    the result is the policy under which the largest regret of any client is smallest. On the rows
    of the regrets, this is never more than under the policy of the first weights. If a client stops
    reporting its regret, the ascent ends with the steps so far.
    """
    names = statistics.clients
    logs = np.log([first[name] for name in names])
    reach = math.sqrt(-8 * float(logs.min()) / most_steps)
    trace: list[Step] = []
    summed, weighted, spread = np.zeros(len(names)), 0.0, 0.0
    converged = False
    while len(trace) < most_steps and not converged:
        odds = np.exp(logs - logs.max())  # at most one, so there is no overflow
        weights = dict(zip(names, (odds / odds.sum()).tolist(), strict=True))
        found = _if_all_known((yield solve_for(statistics, weights)), weights)
        if found is None:
            break
        now = np.array([found[name] for name in names])
        spread = max(spread, float(np.ptp(now)))
        summed += now
        weighted += sum(weights[name] * found[name] for name in names)
        gap = float(summed.max() - weighted) / (len(trace) + 1)
        trace.append(Step(weights=weights, regrets=found, gap=gap))
        converged = gap <= LEAST_GAP * spread
        logs = logs + now * (reach / spread if spread > 0 else 0.0)
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


def climb_at_hand(
    setting: Setting, plan: Minimax, statistics: Mapping[Fold, ValuedStatistics]
) -> dict[Fold, MinimaxSearch]:
    """Mirror ascent on regrets that statistics tell; no client is asked."""
    return _climb(setting, plan, statistics, regrets_at_hand)


def climb_by_asking(
    setting: Setting, conversation: Conversation, plan: Minimax
) -> dict[Fold, MinimaxSearch]:
    """The same for linear policies, whose values clients are asked for at every step."""
    study = setting.study
    without = setting.without_each_fold if study.evaluation.is_cross_fitted else []
    statistics = dict(zip(study.left_out, [*without, setting.statistics], strict=True))
    ask = asking_without(conversation, sorted(setting.weights), RowSplit.TRAINING)
    regrets = partial(regrets_by_asking, ask=ask, most=most_in_query(study))
    return _climb(setting, plan, statistics, regrets)


def _climb(
    setting: Setting,
    plan: Minimax,
    statistics: Mapping[Fold, Known],
    regrets: Callable[[Mapping[Fold, Known]], RegretsUnder],
) -> dict[Fold, MinimaxSearch]:
    """The ascents over all clients that have statistics, without those of a single client."""
    several = {fold: own for fold, own in statistics.items() if len(own.clients) > 1}
    return minimax_weights(several, setting.weights, regrets(several), plan.steps)


# --- on paths -------------------------------------------------------------------------------------

# A target, an α (Section 7), and the mixture λ(α) = n̄ + ε̄.
PathStep = tuple[str, float, Weights]


def skew_paths(
    statistics: Statistics,
    rows: Mapping[str, int],
    values: ValueQueries,
    targets: Sequence[str],
    alphas: Sequence[float] = ALPHAS,
) -> dict[str, SkewPath]:
    """By target, the policies for λ(α) at every α, with their values.

    Every query also has the policy for α = 0, which all paths share.
    """
    steps = steps_toward(targets, rows, alphas)
    policies = [solve_for(statistics, weights) for *_, weights in steps]
    return paths_of(steps, rows, values.value_each(policies), values.sign)


def steps_toward(
    targets: Sequence[str], rows: Mapping[str, int], alphas: Sequence[float]
) -> list[PathStep]:
    """The steps of a path to each target, one path behind the other; each begins at n̄."""
    if any(not 0 < alpha <= 1 for alpha in alphas) or not alphas:
        raise OptionError("alphas: expected numbers above 0 and at most 1; 0 is always included")
    grid = [0.0, *sorted(set(alphas))]
    each = [(target, alpha) for target in targets for alpha in grid]
    return [(*one, mixture.skewed(*one).weights(rows)) for one in each]


def paths_of(
    steps: Sequence[PathStep], rows: Mapping[str, int], valued: Sequence[Valued], sign: float
) -> dict[str, SkewPath]:
    """By target, the path with the values of its policies, compared with the first of all."""
    points: dict[str, list[PathPoint]] = {target: [] for target, _, _ in steps}
    (_, _, first), *_ = steps
    for (target, alpha, weights), policy in zip(steps, valued, strict=True):
        skew, only = skewness(weights, rows), {target: 1.0}
        base = renormalised(first, policy.answers.keys() & rows.keys())
        point = PathPoint(
            alpha=alpha,
            weights=weights,
            skewness=skew,
            effective_rows=sum(rows.values()) / skew,
            at_target=policy.value({target: sign}),
            in_base=policy.value({name: sign * share for name, share in base.items()}),
            target_gain=policy.gain(only, ANCHOR),
            base_gain=policy.gain(base, ANCHOR),
        )
        points[target].append(point)
    return {name: SkewPath(target=name, points=tuple(found)) for name, found in points.items()}


def follow_linear_paths(
    setting: Setting, conversation: Conversation, plan: BestSkew
) -> dict[Fold, SkewPath]:
    """The paths of linear policies, fitted without one fold more, which then values them."""
    study, by_fold = setting.study, setting.by_fold
    assert by_fold is not None  # noqa: S101  (such a study asks for sums by fold)
    rows = {name: setting.rows[name] for name in conversation.require_quorum(by_fold)}
    steps, most = steps_toward([plan.toward], rows, plan.alphas), most_in_query(study)
    batched = {}
    for fold in study.left_out:
        kept = kept_back(fold)
        # Terms that were found in rows of the fold that is valued at last cannot be used.
        fitting = setting.without({kept, fold}, kept if fold is None else fold)
        policies = [solve_for(fitting, weights) for *_, weights in steps]
        batched[fold] = Batched.of([[one] for one in policies], most, policies[0])
    ask = asking_without(conversation, sorted(rows), RowSplit.VALIDATION)
    return {
        fold: paths_of(steps, rows, [one for (one,) in found], study.reward_sign)[plan.toward]
        for fold, found in value_together(batched, ask).items()
    }


def follow_path_among(
    names: list[str],
    setting: Setting,
    plan: BestSkew,
    fitted: Mapping[str, Values],
    kept: Mapping[str, Values],
) -> SkewPath:
    """The path of candidates, chosen by values on some rows and valued by those on rows kept back.

    Over the clients that told both.
    """
    rows = {name: setting.rows[name] for name in fitted if name in kept}
    fitting = FiniteStatistics.of_answers(names, fitted, setting.study.caution)
    values = ValueQueries(picking(names, kept), len(names) + 1, setting.study.reward_sign)
    return skew_paths(fitting, rows, values, [plan.toward], plan.alphas)[plan.toward]
