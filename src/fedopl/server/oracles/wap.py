"""`wap`: weighted all pairs. Which of two actions is better, asked for every two."""

from fedopl.messages.combining import weighted_sum
from fedopl.messages.faults import fault_in_pair_sums
from fedopl.messages.vocabulary import PairSums, SumPairs
from fedopl.policies.pairwise import PairwisePolicy, action_pairs
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.solvers.linear_solvers import solve_pairs
from fedopl.study.mixture import renormalised
from fedopl.study.study import Study


def exchanges(_study: Study) -> int:
    """The sums for all pairs come at once."""
    return 1


def learn(setting: Setting, conversation: Conversation) -> PairwisePolicy:
    """One round of sums for every pair of actions, then one weighted regression for each."""
    answers = conversation.drop(
        conversation.ask(SumPairs, setting.weights, PairSums), fault_in_pair_sums
    )
    conversation.require_quorum(answers)
    weights = renormalised(setting.weights, answers.keys())
    grams = weighted_sum(weights, {name: answer.grams for name, answer in answers.items()})
    products = weighted_sum(weights, {name: answer.products for name, answer in answers.items()})
    study = setting.study
    parameters = solve_pairs(grams, products)
    unknown = setting.statistics.unknown(setting.weights)
    for pair, (first, second) in enumerate(action_pairs(study.n_actions)):
        if unknown[first] or unknown[second]:  # what nobody has a score for loses
            parameters[pair] = 0.0
            parameters[pair, -1] = 1.0 if unknown[second] else -1.0
    return PairwisePolicy(parameters, study.actions, study.features)
