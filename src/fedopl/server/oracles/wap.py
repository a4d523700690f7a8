"""`wap`: weighted all pairs. For every pair of actions, it learns which one is better."""

from fedopl.messages.learning.score_sums import SumPairs
from fedopl.policies.pairwise import PairwisePolicy
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.solvers.linear_solvers import solve_pairs


def learn(setting: Setting, conversation: Conversation) -> PairwisePolicy:
    """One exchange for the sums of all pairs, then one weighted regression for each pair."""
    study = setting.study
    sums = conversation.total(SumPairs(), setting.weights)
    unknown = setting.statistics.unknown(setting.weights)
    parameters = solve_pairs(sums.grams, sums.products, unknown)
    return PairwisePolicy(parameters, study.actions, study.features)
