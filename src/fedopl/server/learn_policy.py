"""Learns the policy: with an oracle, by search, or as the best of candidates."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fedopl.messages.evaluation.policy_fields import most_in_query
from fedopl.messages.evaluation.policy_values import Values
from fedopl.messages.learning.score_sums import SumFitting
from fedopl.messages.message import RowSplit
from fedopl.policies.by_fold import ByFold
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.policy import Policy
from fedopl.results.mixture_search import MinimaxSearch, Search, SkewPath
from fedopl.results.spending.budget_curve import BudgetCurve
from fedopl.results.spending.priced_policies import solved_at
from fedopl.results.sums.any_mixture import Statistics
from fedopl.results.sums.finite_statistics import FiniteStatistics
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.results.sums.term_choice import choose_terms
from fedopl.results.sums.tree_statistics import Searched, TreeStatistics
from fedopl.results.value_tables import LEARNED
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.learn_by_fold import statistics_by_fold
from fedopl.server.mixtures.minimax import (
    Ascent,
    Regrets,
    minimax_weights,
    regrets_at_hand,
    regrets_by_asking,
)
from fedopl.server.mixtures.mixture_paths import skew_paths
from fedopl.server.mixtures.value_queries import ValueQueries, asking, picking
from fedopl.server.oracles import network_rounds, tree_search
from fedopl.server.oracles.by_name import ORACLES
from fedopl.server.policy_comparison import Candidates
from fedopl.server.price_curves import candidate_curve, linear_curve, tree_curve
from fedopl.study.mixture import BestSkew, Minimax


@dataclass(frozen=True, eq=False, kw_only=True)
class Learned:
    """The learned policy, the mixture it is for, and the statistics behind it."""

    setting: Setting  # with the weights that the run found, if the study does not fix them
    policy: Policy | None  # None if it is a rule in clients' code
    statistics: Statistics | None  # from which policies for other mixtures can be solved
    chosen: str = LEARNED  # or the name of a candidate
    search: Search | None = None  # how the weights were found
    tree: TreeStatistics | None = None  # from which a tree was found
    curve: BudgetCurve | None = None  # gains and costs at several prices, if there is a budget
    price: float = 0.0  # of one unit of what the policy spends
    # The values that a candidate was chosen by, by client: without each fold, and last of all rows.
    told: tuple[Mapping[str, Values], ...] = ()

    @property
    def to_value(self) -> Statistics | None:
        """The statistics for policies that are to be valued: without each fold, if values are."""
        if self.statistics is not None and self.setting.study.evaluation.is_cross_fitted:
            return statistics_by_fold(self.setting)
        return self.statistics


@dataclass(frozen=True, eq=False, kw_only=True)
class Task:
    """What learning starts from."""

    setting: Setting
    conversation: Conversation
    candidates: Candidates
    alone: Callable[[], Policy] | None  # learns in the process of the only party, if there is one


def learn_policy(task: Task) -> Learned:
    """Learn the study's kind of policy; also adds it and the constant arms to `candidates`."""
    learned = _within_budget(LEARNERS[task.setting.study.policy.kind](task), task)
    if learned.policy and learned.chosen == LEARNED:
        task.candidates.policies[LEARNED] = learned.policy
        task.candidates.add_arms(learned.setting)
    return learned


def _within_budget(learned: Learned, task: Task) -> Learned:
    """The policy at the lowest price at which it keeps to the budget, if there is a budget."""
    study, setting = task.setting.study, learned.setting
    if study.budget is None:
        return learned
    statistics, policy = learned.statistics, learned.policy
    if isinstance(statistics, FiniteStatistics):
        known = task.candidates.known
        curve, costs = candidate_curve(statistics, known, setting, task.conversation)
        statistics = replace(statistics, costs=costs)
        by_fold = [replace(own, costs=costs) for own in setting.choices_by_fold]
        setting = replace(setting, choices_by_fold=by_fold)
    elif isinstance(statistics, TreeStatistics):
        curve = tree_curve(statistics, setting, task.conversation)
    else:
        assert statistics is not None  # noqa: S101
        assert isinstance(policy, LinearPolicy)  # noqa: S101
        curve = linear_curve(policy, setting, task.conversation)
    price = curve.price_for(study.budget)
    chosen = solved_at(statistics, setting.weights, price, study)
    assert not isinstance(chosen, ByFold)  # noqa: S101
    return replace(
        learned,
        setting=setting,
        statistics=statistics,
        chosen=chosen if isinstance(chosen, str) else learned.chosen,
        policy=task.candidates.policies.get(chosen) if isinstance(chosen, str) else chosen,
        curve=curve,
        price=price,
    )


def _linear(task: Task) -> Learned:
    """A linear policy by the study's oracle, for weights that the study gives or the run finds."""
    setting, conversation, plan = task.setting, task.conversation, task.setting.study.mixture
    search: Search | None = None
    if isinstance(plan, BestSkew):
        search = _follow_linear_path(setting, conversation, plan)
    elif isinstance(plan, Minimax):
        search = _climb_linear(setting, conversation, plan)
    setting = _weighed(setting, search)
    policy = ORACLES[setting.study.linear.oracle].learn(setting, conversation)
    return Learned(setting=setting, policy=policy, statistics=setting.statistics, search=search)


def _tree(task: Task) -> Learned:
    """A tree, found by search on the grid or by the only client."""
    setting, plan, search = task.setting, task.setting.study.mixture, None
    if task.alone is not None:
        return Learned(setting=setting, policy=task.alone(), statistics=None)
    versions, counts = tree_search.learn(setting, task.conversation)
    if isinstance(plan, Minimax):
        folds, found = setting.study.left_out, [own.statistics for own in versions]
        *without, search = [
            _climb_tree(setting, plan, own, fold) for own, fold in zip(found, folds, strict=True)
        ]
        by_fold = [_weighed(setting, one).weights for one in without]
        setting = replace(_weighed(setting, search), weights_by_fold=by_fold)
        weights = map(setting.weights_without, folds)
        versions = [Searched(own.solve(w), own) for own, w in zip(found, weights, strict=True)]
    # Weights are found with thresholds on the grid. Only the final tree's thresholds move off it.
    *trees, last = tree_search.look_twice(versions, counts, setting, task.conversation)
    setting = replace(setting, trees_by_fold=trees)
    return Learned(
        setting=setting,
        policy=last.policy,
        statistics=last.statistics,
        search=search,
        tree=last.statistics,
    )


def _finite(task: Task) -> Learned:
    """The candidate with the largest value on training rows."""
    setting, candidates = task.setting, task.candidates
    told = candidates.ask(setting, task.conversation, RowSplit.TRAINING, setting.study.left_out)
    names, caution = candidates.names(), setting.study.caution
    *by_fold, statistics = [FiniteStatistics.of_answers(names, own, caution) for own in told]
    without = [_search_among(task, own) for own in by_fold]
    search = _search_among(task, statistics)
    setting = replace(
        _weighed(setting, search),
        choices_by_fold=by_fold,
        weights_by_fold=[_weighed(setting, own).weights for own in without],
    )
    chosen = statistics.solve({name: setting.weights[name] for name in statistics.means})
    return Learned(
        setting=setting,
        chosen=chosen,
        policy=candidates.policies.get(chosen),
        statistics=statistics,
        search=search,
        told=tuple(told),
    )


def _search_among(task: Task, statistics: FiniteStatistics) -> Search | None:
    """The search for weights, if the study lets the run find them; otherwise None."""
    setting, candidates, plan = task.setting, task.candidates, task.setting.study.mixture
    if isinstance(plan, Minimax):
        return _climb(setting, plan, statistics, lambda: regrets_at_hand(statistics))
    if not isinstance(plan, BestSkew):
        return None
    names = candidates.names()
    (told,) = candidates.ask(setting, task.conversation, RowSplit.FITTING)
    fitting = FiniteStatistics.of_answers(names, told, statistics.caution)
    (kept_back,) = candidates.ask(setting, task.conversation, RowSplit.VALIDATION)
    # A path needs from each client both the values to fit on and those on rows kept back.
    both = {name: setting.weights[name] for name in fitting.means if name in kept_back}
    within = replace(setting, weights=both)
    sign = setting.study.reward_sign
    values = ValueQueries(picking(names, kept_back), len(names) + 1, sign)
    return _follow_path(within, plan, fitting, values)


def _neural(task: Task) -> Learned:
    """A network, trained in rounds that start from the exact linear policy."""
    policy = network_rounds.learn(task.setting, task.conversation)
    return Learned(setting=task.setting, policy=policy, statistics=None)


# By the kind of policy that the study wants.
LEARNERS: dict[str, Callable[[Task], Learned]] = {
    "linear": _linear,
    "tree": _tree,
    "finite": _finite,
    "neural": _neural,
}


def _weighed(setting: Setting, search: Search | None) -> Setting:
    """The setting with the weights that were found; zero for clients outside the search."""
    if search is None:
        return setting
    return replace(
        setting, weights={name: search.weights.get(name, 0.0) for name in setting.weights}
    )


# --- mixtures that are found while a study runs -------------------------------------------------


def _follow_path(
    setting: Setting, plan: BestSkew, fitting: Statistics, values: ValueQueries
) -> SkewPath:
    """The path of policies fitted without the first fold, valued on the first fold."""
    rows = {name: setting.rows[name] for name in setting.weights}
    return skew_paths(fitting, rows, values, [plan.toward], plan.alphas)[plan.toward]


def _follow_linear_path(setting: Setting, conversation: Conversation, plan: BestSkew) -> SkewPath:
    """The path of linear policies: sums over the other folds, then values on the first."""
    study = setting.study
    sums = conversation.require_quorum(conversation.each(SumFitting(), setting.weights))
    weights = {name: setting.weights[name] for name in sums}
    values = ValueQueries(
        asking(conversation, sorted(sums), RowSplit.VALIDATION),
        most_in_query(study),
        study.reward_sign,
    )
    n_folds = study.nuisances.folds
    rows = {name: setting.rows[name] * (n_folds - 1) / n_folds for name in sums}
    taken = setting.statistics.taken
    fitting = ScoreStatistics(
        study=study,
        sums=sums,
        rows=rows,
        left_out=(0,),
        borrowed=setting.statistics.borrowed,
        taken=taken and taken.of_folds(range(1, n_folds)),
    )
    # The first fold values these policies, so it must not be used to choose their terms.
    choice = choose_terms(
        study, setting.by_fold or {}, weights, range(1, n_folds), fitting.noise_weights(weights)
    )
    fitting = replace(fitting, choice=choice)
    return _follow_path(replace(setting, weights=weights), plan, fitting, values)


def _climb(
    setting: Setting, plan: Minimax, statistics: Statistics, regrets: Callable[[], Regrets]
) -> MinimaxSearch | None:
    """Mirror ascent on regrets over training rows; None for a single client, with no regret."""
    if len(setting.weights) < 2:
        return None
    return minimax_weights(statistics, setting.weights, regrets(), Ascent(most_steps=plan.steps))


def _climb_tree(
    setting: Setting, plan: Minimax, found: TreeStatistics, fold: int | None
) -> MinimaxSearch | None:
    """The ascent for trees, all of whose regrets are at hand; without a fold if one is given.

    Then it is over clients that have sums without it.
    """
    if fold is not None:
        within = {name: weight for name, weight in setting.weights.items() if name in found.cells}
        setting = replace(setting, weights=within)
    return _climb(setting, plan, found, lambda: regrets_at_hand(found))


def _climb_linear(
    setting: Setting, conversation: Conversation, plan: Minimax
) -> MinimaxSearch | None:
    """The ascent for linear policies; clients are asked for their values at every step."""

    def regrets() -> Regrets:
        ask = asking(conversation, sorted(setting.weights), RowSplit.TRAINING)
        values = ValueQueries(ask, most_in_query(setting.study))
        return regrets_by_asking(setting.statistics, values)

    return _climb(setting, plan, setting.statistics, regrets)
