"""Learning the policy: by an oracle, by search, or as the best of candidates."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from fedopl.messages.vocabulary import Split
from fedopl.policies.kinds import Policy
from fedopl.policies.linear import LinearPolicy
from fedopl.results.mixture_search import Search, weights_of
from fedopl.results.policy_names import LEARNED
from fedopl.results.sums.any_mixture import Statistics
from fedopl.results.sums.finite_statistics import FiniteStatistics
from fedopl.results.sums.tree_statistics import TreeStatistics
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.mixtures.ask_values import picking
from fedopl.server.mixtures.weight_search import climb, follow_linear_path, follow_path
from fedopl.server.oracles import direct, exact, sgd, tree_search, wap
from fedopl.server.policy_comparison import Candidates
from fedopl.study.mixture import Minimax, Path

ORACLES: dict[str, Callable[[Setting, Conversation], LinearPolicy]] = {
    "csoaa-exact": exact.learn,
    "csoaa-sgd": sgd.learn,
    "csoaa-vw": sgd.learn,  # the same rounds; only the clients' steps differ
    "wap": wap.learn,
    "direct": direct.learn,
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Learned:
    """What was learned, for whom, and from what."""

    setting: Setting  # with the weights that were found, where they had to be
    chosen: str
    policy: Policy | None  # None where it is a rule in clients' code
    statistics: Statistics | None  # what policies for other mixtures can be found from
    search: Search | None = None  # how the weights were found

    @property
    def tree(self) -> TreeStatistics | None:
        """What a tree was found from."""
        return self.statistics if isinstance(self.statistics, TreeStatistics) else None


def learn_policy(
    setting: Setting,
    conversation: Conversation,
    candidates: Candidates,
    alone: Callable[[], Policy] | None,
) -> Learned:
    """Learn what the study wants; `candidates` has it afterwards, and the best constant arm."""
    if setting.study.policy == "finite":
        return _best_candidate(setting, conversation, candidates)
    by = _tree(setting, conversation, alone) if setting.study.policy == "tree" else None
    learned = by or _linear(setting, conversation)
    if learned.policy:
        candidates.add(LEARNED, learned.policy)
    candidates.add_arm(learned.setting.best_arm)
    return learned


def _linear(setting: Setting, conversation: Conversation) -> Learned:
    """By the study's oracle, for the weights that were agreed or found."""
    plan, statistics = setting.study.mixture, setting.statistics
    search: Search | None = None
    if isinstance(plan, Path):
        search = follow_linear_path(setting, conversation, plan)
    elif isinstance(plan, Minimax):
        search = climb(setting, conversation, plan, statistics)
    setting = _weighed(setting, search)
    policy = ORACLES[setting.study.oracle](setting, conversation)
    return Learned(
        setting=setting, chosen=LEARNED, policy=policy, statistics=statistics, search=search
    )


def _tree(
    setting: Setting, conversation: Conversation, alone: Callable[[], Policy] | None
) -> Learned:
    """Searched for on the grid, or by the only party there is."""
    if alone is not None:
        return Learned(setting=setting, chosen=LEARNED, policy=alone(), statistics=None)
    policy, found = tree_search.learn(setting, conversation)
    plan, search = setting.study.mixture, None
    if isinstance(plan, Minimax):
        search = climb(setting, conversation, plan, found)
        setting = _weighed(setting, search)
        policy = found.solve(setting.weights)
    return Learned(setting=setting, chosen=LEARNED, policy=policy, statistics=found, search=search)


def _best_candidate(
    setting: Setting, conversation: Conversation, candidates: Candidates
) -> Learned:
    """The one of the largest value on training rows."""
    told = candidates.ask(setting, conversation, Split.TRAINING)
    statistics = FiniteStatistics.of_answers(candidates.names(), told)
    search = _search_among(setting, conversation, candidates, statistics)
    setting = _weighed(setting, search)
    chosen = statistics.solve({name: setting.weights[name] for name in statistics.means})
    return Learned(
        setting=setting,
        chosen=chosen,
        policy=candidates.policies.get(chosen),
        statistics=statistics,
        search=search,
    )


def _search_among(
    setting: Setting,
    conversation: Conversation,
    candidates: Candidates,
    statistics: FiniteStatistics,
) -> Search | None:
    plan, names = setting.study.mixture, candidates.names()
    if isinstance(plan, Minimax):
        return climb(setting, conversation, plan, statistics)
    if not isinstance(plan, Path):
        return None
    fitting = FiniteStatistics.of_answers(
        names, candidates.ask(setting, conversation, Split.FITTING)
    )
    kept_back = candidates.ask(setting, conversation, Split.VALIDATION)
    both = {name: setting.weights[name] for name in fitting.means if name in kept_back}
    within = replace(setting, weights=both)
    return follow_path(within, plan, fitting, picking(names, kept_back), most=len(names) + 1)


def _weighed(setting: Setting, search: Search | None) -> Setting:
    """With the weights that were found; who was not part of the search has none."""
    if search is None:
        return setting
    found = weights_of(search)
    return replace(setting, weights={name: found.get(name, 0.0) for name in setting.weights})
