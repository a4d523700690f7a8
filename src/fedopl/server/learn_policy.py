"""Learns the policy: with an oracle, by search, or as the best of candidates."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fedopl.messages.evaluation.policy_values import Values
from fedopl.messages.message import RowSplit
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.policy import ByFold, Policy
from fedopl.results.mixture_search import Search
from fedopl.results.spending.budget_curve import BudgetCurve
from fedopl.results.spending.priced_policies import solved_at
from fedopl.results.sums.any_mixture import Statistics
from fedopl.results.sums.finite_statistics import FiniteStatistics
from fedopl.results.sums.tree_statistics import Searched, TreeStatistics
from fedopl.results.value_tables import LEARNED
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.answers import Answers
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.learn_by_fold import statistics_by_fold
from fedopl.server.mixtures.found_weights import (
    Searches,
    climb_at_hand,
    climb_by_asking,
    follow_linear_paths,
    follow_path_among,
    with_found,
)
from fedopl.server.mixtures.value_queries import Fold
from fedopl.server.oracles import network_rounds, tree_search
from fedopl.server.oracles.linear_oracles import ORACLES
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
    searches: Searches = {}
    if isinstance(plan, BestSkew):
        searches = follow_linear_paths(setting, conversation, plan)
    elif isinstance(plan, Minimax):
        searches = climb_by_asking(setting, conversation, plan)
    setting = with_found(setting, searches)
    return Learned(
        setting=setting,
        policy=ORACLES[setting.study.linear.oracle].learn(setting, conversation),
        statistics=setting.statistics,
        search=searches.get(None),
    )


def _tree(task: Task) -> Learned:
    """A tree, found by search on the grid or by the only client."""
    setting, plan = task.setting, task.setting.study.mixture
    searches: Searches = {}
    if task.alone is not None:
        return Learned(setting=setting, policy=task.alone(), statistics=None)
    versions, counts = tree_search.learn(setting, task.conversation)
    if isinstance(plan, Minimax):
        folds, found = setting.study.left_out, [own.statistics for own in versions]
        searches = climb_at_hand(setting, plan, dict(zip(folds, found, strict=True)))
        setting = with_found(setting, searches)
        weights = map(setting.weights_without, folds)
        versions = [Searched(own.solve(w), own) for own, w in zip(found, weights, strict=True)]
    # Weights are found with thresholds on the grid. Only the final tree's thresholds move off it.
    *trees, last = tree_search.look_twice(versions, counts, setting, task.conversation)
    setting = replace(setting, trees_by_fold=trees)
    return Learned(
        setting=setting,
        policy=last.policy,
        statistics=last.statistics,
        search=searches.get(None),
        tree=last.statistics,
    )


def _finite(task: Task) -> Learned:
    """The candidate with the largest value on training rows."""
    setting, candidates, plan = task.setting, task.candidates, task.setting.study.mixture
    names, caution = candidates.names(), setting.study.caution

    def told(split: RowSplit) -> dict[Fold, Answers[Values]]:
        return candidates.ask(setting, task.conversation, split)

    training = told(RowSplit.TRAINING)
    known = {
        fold: FiniteStatistics.of_answers(names, own, caution) for fold, own in training.items()
    }
    searches: Searches = {}
    if isinstance(plan, Minimax):
        searches = climb_at_hand(setting, plan, known)
    elif isinstance(plan, BestSkew):
        fitting, kept = told(RowSplit.FITTING), told(RowSplit.VALIDATION)
        searches = {
            fold: follow_path_among(names, setting, plan, fitting[fold], kept[fold])
            for fold in known
        }
    *by_fold, statistics = known.values()
    setting = replace(with_found(setting, searches), choices_by_fold=by_fold)
    chosen = statistics.solve({name: setting.weights[name] for name in statistics.means})
    return Learned(
        setting=setting,
        chosen=chosen,
        policy=candidates.policies.get(chosen),
        statistics=statistics,
        search=searches.get(None),
        told=tuple(training.values()),
    )


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
