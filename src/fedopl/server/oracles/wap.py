"""`wap`: weighted all pairs. Which of two actions is better, asked for every two."""

from fedopl.mixture import renormalised
from fedopl.policies.linear import PairwisePolicy
from fedopl.server.aggregation import weighted_sum
from fedopl.server.conversation import Conversation
from fedopl.server.oracles.setting import Setting
from fedopl.solving import solve_pairs
from fedopl.wire.vocabulary import PairSums, SumPairs


def learn(setting: Setting, conversation: Conversation) -> PairwisePolicy:
    """One round of sums for every pair of actions, then one weighted regression for each."""
    answers = conversation.require_quorum(conversation.ask(SumPairs, setting.weights, PairSums))
    weights = renormalised(setting.weights, answers.keys())
    grams = weighted_sum(weights, {name: answer.grams for name, answer in answers.items()})
    products = weighted_sum(weights, {name: answer.products for name, answer in answers.items()})
    study = setting.study
    return PairwisePolicy(solve_pairs(grams, products), study.actions, study.features)
