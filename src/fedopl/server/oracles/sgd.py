"""`csoaa-sgd`: the paper's FedOPL. Rounds of local steps, averaged by the mixture."""

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.seeds import generator_for
from fedopl.messages.combining import combined
from fedopl.messages.learning.improved_policy import ImprovePolicy
from fedopl.policies.linear import NEVER, LinearPolicy
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.study.mixture import renormalised
from fedopl.study.policy_plans import TrainingPlan
from fedopl.study.study import Study

# Shares of the rounds that are left out of a mean; of these means the one of least loss is kept.
LEFT_OUT = (0, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 7 / 8)


def learn(setting: Setting, conversation: Conversation) -> LinearPolicy:
    """Algorithm 1, on standardised features; a mean over rounds is kept.

    A single round's parameters carry the noise of their last batches; their average does not
    (Polyak & Juditsky 1992). How many early rounds to leave out depends on how far the way was, so
    there are several means, and the one of least loss is kept.
    """
    study, plan = setting.study, setting.study.linear.training
    centre, scale = setting.statistics.standardisation(setting.weights)
    parameters = np.zeros((study.n_actions, study.n_features + 1))  # θ_g
    loss = setting.statistics.loss(setting.weights)
    velocity = np.zeros_like(parameters)
    totals = {first: np.zeros_like(parameters) for first in first_averaged(plan)}
    for turn in range(plan.rounds):
        query = ImprovePolicy(round=turn, parameters=parameters, centre=centre, scale=scale)
        clients = sampled(setting, turn)
        answers = conversation.each(query, clients)  # θ_c, c ∈ S ⊂ C
        conversation.require_quorum(answers, of=len(clients))
        weights = renormalised(setting.weights, answers.keys())
        average = combined(answers, weights).parameters  # Σ λ_c θ_c / Σ λ_c
        # The server's momentum, as in FedAvgM (Hsu, Qi & Brown 2019).
        velocity = plan.momentum * velocity + (average - parameters)
        parameters = parameters + velocity
        conversation.measure(
            answers.exchange, loss=loss(on_raw_features(parameters, centre, scale))
        )
        for first in totals:
            if turn >= first:
                totals[first] += parameters
    means = (total / (plan.rounds - first) for first, total in totals.items())
    learned = min((on_raw_features(mean, centre, scale) for mean in means), key=loss)
    return LinearPolicy(without_unknown(learned, setting), study.actions, study.features)


def exchanges(study: Study) -> int:
    """One for every round."""
    return study.linear.training.rounds


def first_averaged(plan: TrainingPlan) -> list[int]:
    """The first rounds of the means to choose from."""
    if plan.average == "rounds":
        return [plan.rounds // 2]
    return sorted({int(share * plan.rounds) for share in LEFT_OUT} | {plan.rounds - 1})


def without_unknown(parameters: FloatArray, setting: Setting) -> FloatArray:
    """The same parameters, but an action nobody has a score for is never chosen."""
    unknown = setting.statistics.unknown(setting.weights)
    parameters = np.where(unknown[:, None], 0.0, parameters)
    parameters[unknown, -1] = NEVER
    return parameters


def sampled(setting: Setting, turn: int) -> list[str]:
    """The clients of one round: all, or as many as the plan says, drawn by seed and round."""
    names = sorted(setting.weights)
    wanted = setting.study.linear.training.clients_per_round
    if wanted is None or wanted >= len(names):
        return names
    rng = generator_for(setting.study.seed, purpose=f"clients of round {turn}")
    return sorted(rng.choice(names, wanted, replace=False).tolist())


def on_raw_features(
    parameters: FloatArray, centre: FloatArray, scale: FloatArray
) -> FloatArray:  # (n_actions, n_features + 1)
    """Parameters for standardised features, as parameters for the features themselves."""
    raw = parameters / scale
    raw[:, -1] = parameters[:, -1] - raw[:, :-1] @ centre[:-1]
    return raw


def on_standardised_features(
    parameters: FloatArray, centre: FloatArray, scale: FloatArray
) -> FloatArray:  # (n_actions, n_features + 1)
    """The way back."""
    standardised = parameters * scale
    standardised[:, -1] = parameters[:, -1] + parameters[:, :-1] @ centre[:-1]
    return standardised
