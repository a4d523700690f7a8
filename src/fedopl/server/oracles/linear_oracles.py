"""The oracles for linear policies, and their table by the names that they have in a study."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.seeds import generator_for
from fedopl.messages.combining import combined
from fedopl.messages.evaluation.policy_values import N_OWN_CANDIDATES, Value, ValuesByPart
from fedopl.messages.learning.policy_steps import ImprovePolicy, SlopeOfValue
from fedopl.messages.learning.score_sums import SumPairs
from fedopl.messages.message import RowSplit
from fedopl.policies.kinds import packed
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.pairwise import PairwisePolicy
from fedopl.server.aggregate.evaluation import mixture_estimate
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.solvers.averaged_rounds import (
    STEPS_EACH,
    TEMPERATURES,
    AveragedRounds,
    climb,
    on_raw_features,
    surely_rises,
)
from fedopl.solvers.linear_solvers import never_taken, solve_pairs
from fedopl.study.mixture import renormalised
from fedopl.study.study import Study


def solve_exactly(setting: Setting, _conversation: Conversation) -> LinearPolicy:
    """`csoaa-exact`: the least-squares objective of FedOPL, solved at once from the sums."""
    return setting.statistics.solve(setting.weights)


def average_rounds(setting: Setting, conversation: Conversation) -> LinearPolicy:
    """`csoaa-sgd`: the paper's FedOPL. Rounds of local steps, averaged by the mixture.

    Algorithm 1, on standardised features; the result is a mean over rounds.
    """
    study, plan = setting.study, setting.study.linear.training
    centre, scale = setting.statistics.standardisation(setting.weights)
    loss = setting.statistics.loss(setting.weights)
    shape = (study.n_actions, study.n_features + 1)
    rounds = AveragedRounds(shape, plan.rounds, plan.momentum, plan.average)
    for turn in range(plan.rounds):
        query = ImprovePolicy(round=turn, parameters=rounds.parameters, centre=centre, scale=scale)
        clients = sampled(setting, turn)
        answers = conversation.each(query, clients)  # θ_c, c ∈ S ⊂ C
        conversation.require_quorum(answers, of=len(clients))
        weights = renormalised(setting.weights, answers.keys())
        rounds.move_to(combined(answers, weights).parameters)  # Σ λ_c θ_c / Σ λ_c
        reached = on_raw_features(rounds.parameters, centre, scale)
        conversation.measure(answers.exchange, loss=loss(reached))
    learned = rounds.best(centre, scale, loss)
    unknown = setting.statistics.unknown(setting.weights)
    return LinearPolicy(never_taken(learned, unknown), study.actions, study.features)


def sampled(setting: Setting, turn: int) -> list[str]:
    """The clients of one round: all, or a sample of the plan's size, drawn by seed and round."""
    names = sorted(setting.weights)
    wanted = setting.study.linear.training.clients_per_round
    if wanted is None or wanted >= len(names):
        return names
    rng = generator_for(setting.study.seed, purpose=f"clients of round {turn}")
    return sorted(rng.choice(names, wanted, replace=False).tolist())


def solve_all_pairs(setting: Setting, conversation: Conversation) -> PairwisePolicy:
    """`wap`: weighted all pairs. For every pair of actions, it learns which one is better.

    One exchange for the sums of all pairs, then one weighted regression for each pair.
    """
    study = setting.study
    sums = conversation.total(SumPairs(), setting.weights)
    unknown = setting.statistics.unknown(setting.weights)
    parameters = solve_pairs(sums.grams, sums.products, unknown)
    return PairwisePolicy(parameters, study.actions, study.features)


def climb_value(setting: Setting, conversation: Conversation) -> LinearPolicy:
    """`direct`: maximise the estimated value itself, starting from the exact solution.

    Climb on all folds but the first; keep the result if it gains value on the first fold.
    """
    study = setting.study
    start = solve_exactly(setting, conversation)
    centre, scale = setting.statistics.standardisation(setting.weights)

    def slope_at(parameters: FloatArray, temperature: float) -> FloatArray:
        query = SlopeOfValue(temperature=temperature, parameters=parameters)
        return conversation.total(query, setting.weights).gradient

    reached = climb(start.parameters, centre, scale, slope_at)
    climbed = LinearPolicy(reached, study.actions, study.features)
    return climbed if _pays(setting, conversation, start, climbed) else start


def _pays(
    setting: Setting, conversation: Conversation, start: LinearPolicy, climbed: LinearPolicy
) -> bool:
    fields: dict[str, Any] = packed([start, climbed], setting.study)
    # Slopes come from the other folds, so a higher value on this one is not overfitting.
    query = Value(split=RowSplit.VALIDATION, **fields)
    answers = conversation.each(query, setting.weights).each(ValuesByPart.together)
    if not answers:
        return False
    contrasts = np.eye(2 + N_OWN_CANDIDATES)
    gain = mixture_estimate(answers, setting.weights, contrasts[1] - contrasts[0])
    value = mixture_estimate(answers, setting.weights, contrasts[1]).value
    conversation.measure(answers.exchange, value=setting.study.reward_sign * value)
    return surely_rises(gain)


class LinearOracle(NamedTuple):
    """Finds a policy for the setting's mixture; it asks clients for what the sums do not tell."""

    learn: Callable[[Setting, Conversation], LinearPolicy]
    # The largest number of exchanges with clients that learning takes.
    exchanges: Callable[[Study], int] = lambda _study: 0


_IN_ROUNDS = LinearOracle(average_rounds, lambda study: study.linear.training.rounds)
ORACLES = {
    "csoaa-exact": LinearOracle(solve_exactly),
    "csoaa-sgd": _IN_ROUNDS,
    "csoaa-vw": _IN_ROUNDS,  # only the clients' steps differ
    "wap": LinearOracle(solve_all_pairs, lambda _study: 1),
    # At most one slope for each step, and one exchange for the values at start and end.
    "direct": LinearOracle(climb_value, lambda _study: len(TEMPERATURES) * STEPS_EACH + 1),
}
