"""`csoaa-sgd`: the paper's FedOPL. Rounds of local steps, averaged by the mixture."""

import numpy as np

from fedopl.arrays import FloatArray
from fedopl.mixture import renormalised
from fedopl.policies.linear import LinearPolicy
from fedopl.seeds import generator_for
from fedopl.server.aggregation import weighted_sum
from fedopl.server.conversation import Conversation
from fedopl.server.oracles.setting import Setting
from fedopl.wire.vocabulary import ImprovedPolicy, ImprovePolicy


def learn(setting: Setting, conversation: Conversation) -> LinearPolicy:
    """Algorithm 1, on standardised features; the mean of the later rounds is kept.

    A single round's parameters carry the noise of their last batches; their average does not
    (Polyak & Juditsky 1992).
    """
    study, plan = setting.study, setting.study.plan
    centre, scale = setting.statistics.standardisation(setting.weights)
    parameters = np.zeros((study.n_actions, study.n_features + 1))  # θ_g
    velocity, total, kept = np.zeros_like(parameters), np.zeros_like(parameters), 0
    for turn in range(plan.rounds):
        clients = sampled(setting, turn)  # S ⊂ C
        answers = conversation.ask(
            ImprovePolicy,
            clients,
            ImprovedPolicy,
            round=turn,
            parameters=parameters,
            centre=centre,
            scale=scale,
        )
        if not answers:
            conversation.require_quorum(answers)
        weights = renormalised(setting.weights, answers.keys())
        improved = {name: answer.parameters for name, answer in answers.items()}  # θ_c
        average = weighted_sum(weights, improved)  # Σ λ_c θ_c / Σ λ_c
        velocity = plan.momentum * velocity + (average - parameters)
        parameters = parameters + velocity
        if 2 * turn >= plan.rounds - 1:
            total, kept = total + parameters, kept + 1
    return LinearPolicy(on_raw_features(total / kept, centre, scale), study.actions, study.features)


def sampled(setting: Setting, turn: int) -> list[str]:
    """The clients of one round: all, or as many as the plan says, drawn by seed and round."""
    names = sorted(setting.weights)
    wanted = setting.study.plan.clients_per_round
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
