"""`wap`: weighted all pairs. Which of two actions is better, asked for every two."""

from fedopl.messages.learning.pair_sums import SumPairs
from fedopl.policies.pairwise import PairwisePolicy, action_pairs
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.solvers.linear_solvers import solve_through_zero


def learn(setting: Setting, conversation: Conversation) -> PairwisePolicy:
    """One round of sums for every pair of actions, then one weighted regression for each."""
    study = setting.study
    sums = conversation.total(SumPairs(), setting.weights)
    parameters = solve_through_zero(sums.grams, sums.products)  # (n_pairs, n_columns)
    unknown = setting.statistics.unknown(setting.weights)
    for pair, (first, second) in enumerate(action_pairs(study.n_actions)):
        if unknown[first] or unknown[second]:  # what nobody has a score for loses
            parameters[pair] = 0.0
            parameters[pair, -1] = 1.0 if unknown[second] else -1.0
    return PairwisePolicy(parameters, study.actions, study.features)
