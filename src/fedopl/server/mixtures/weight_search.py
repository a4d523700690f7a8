"""Mixtures that are found while a study runs: along a path, or for the client that loses most."""

from collections.abc import Callable
from dataclasses import replace

from fedopl.messages.evaluation.policy_values import most_candidates
from fedopl.messages.learning.score_sums import SumFitting
from fedopl.messages.message import RowSplit
from fedopl.results.mixture_search import MinimaxSearch, SkewPath
from fedopl.results.sums.any_mixture import Statistics
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.mixtures.minimax import Ascent, Regrets, minimax_weights, regrets_by_asking
from fedopl.server.mixtures.mixture_paths import skew_paths
from fedopl.server.mixtures.value_queries import ValueQueries, asking
from fedopl.study.mixture import BestSkew, Minimax


def follow_path(
    setting: Setting, plan: BestSkew, fitting: Statistics, values: ValueQueries
) -> SkewPath:
    """The path of policies fitted without the first fold, valued on the first fold."""
    rows = {name: setting.rows[name] for name in setting.weights}
    return skew_paths(fitting, rows, [plan.toward], values, plan.alphas)[plan.toward]


def follow_linear_path(setting: Setting, conversation: Conversation, plan: BestSkew) -> SkewPath:
    """The path of linear policies: sums over the other folds, then values on the first."""
    study = setting.study
    sums = conversation.require_quorum(conversation.each(SumFitting(), setting.weights))
    weights = {name: setting.weights[name] for name in sums}
    values = ValueQueries(
        asking(conversation, sorted(sums), RowSplit.VALIDATION), most_candidates(study)
    )
    fitting = ScoreStatistics(study=study, sums=sums)
    return follow_path(replace(setting, weights=weights), plan, fitting, values)


def climb(
    setting: Setting, plan: Minimax, statistics: Statistics, regrets: Callable[[], Regrets]
) -> MinimaxSearch | None:
    """Mirror ascent on regrets over training rows; one client alone loses nothing to anybody."""
    if len(setting.weights) < 2:
        return None
    return minimax_weights(statistics, setting.weights, regrets(), Ascent(most_steps=plan.steps))


def climb_linear(
    setting: Setting, conversation: Conversation, plan: Minimax
) -> MinimaxSearch | None:
    """The ascent for linear policies, whose values at every step only clients know."""

    def regrets() -> Regrets:
        ask = asking(conversation, sorted(setting.weights), RowSplit.TRAINING)
        values = ValueQueries(ask, most_candidates(setting.study))
        return regrets_by_asking(setting.statistics, values)

    return climb(setting, plan, setting.statistics, regrets)
