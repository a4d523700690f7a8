"""Weights that a run finds: by minimax, or on a path toward one client.

If values are cross-fitted, they are found without each fold, and at last in all rows. Clients are
asked about all of these at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from fedopl.messages.evaluation.policy_fields import most_in_query
from fedopl.messages.evaluation.policy_values import Values
from fedopl.messages.message import RowSplit, kept_back
from fedopl.results.mixture_search import MinimaxSearch, Search, SkewPath
from fedopl.results.sums.any_mixture import Statistics, ValuedStatistics
from fedopl.results.sums.finite_statistics import FiniteStatistics
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.mixtures.minimax import (
    Ascent,
    RegretsUnder,
    minimax_weights,
    regrets_at_hand,
    regrets_by_asking,
)
from fedopl.server.mixtures.mixture_paths import paths_of, skew_paths, solved, steps_toward
from fedopl.server.mixtures.value_queries import (
    Batched,
    Fold,
    ValueQueries,
    asking_without,
    picking,
    value_together,
)
from fedopl.study.mixture import BestSkew, Minimax, Weights

Known = TypeVar("Known", bound=Statistics)
Searches = Mapping[Fold, Search]


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

    def regrets(known: Mapping[Fold, ScoreStatistics]) -> RegretsUnder:
        return regrets_by_asking(known, ask, most_in_query(study))

    return _climb(setting, plan, statistics, regrets)


def _climb(
    setting: Setting,
    plan: Minimax,
    statistics: Mapping[Fold, Known],
    regrets: Callable[[Mapping[Fold, Known]], RegretsUnder],
) -> dict[Fold, MinimaxSearch]:
    """The ascents over all clients that have statistics, without those of a single client."""
    several = {fold: own for fold, own in statistics.items() if len(own.clients) > 1}
    starts = {
        fold: {name: setting.weights[name] for name in own.clients} for fold, own in several.items()
    }
    return minimax_weights(several, starts, regrets(several), Ascent(most_steps=plan.steps))


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
        policies = solved(steps, fitting)
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
