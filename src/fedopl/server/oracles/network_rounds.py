"""A network on top of the exact linear policy: rounds of local steps, averaged by the mixture.

Held-out rows decide when to stop and which round to keep. If no network demonstrably beats the
linear policy on them, the linear policy is the result.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.seeds import generator_for
from fedopl.messages.combining import weighted_sum
from fedopl.messages.learning.policy_steps import TrainedNetwork, TrainNetwork
from fedopl.policies.neural import (
    NeuralPolicy,
    first_network,
    network_numbers,
    network_of,
    on_raw_contexts,
    widths_in,
)
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.study.mixture import Weights, renormalised

_LEAST_VARIANCE = 1e-12  # keeps the unit above zero if the linear policy leaves no residual


@dataclass(frozen=True, eq=False, kw_only=True)
class _HeldOut:
    """A network, and its held-out loss minus that of the linear policy."""

    turn: int
    network: FloatArray
    loss: float
    standard_error: float

    @property
    def surely_helps(self) -> bool:
        """Whether the loss is lower by more than a standard error; if not, no network is used."""
        return self.loss + self.standard_error < 0


def learn(setting: Setting, conversation: Conversation) -> NeuralPolicy:
    """FedAvg (McMahan et al. 2017) on the residuals of scores after the exact policy."""
    study, statistics = setting.study, setting.statistics
    start, width = statistics.solve(setting.weights), study.n_features
    centre, scale = (of_all[:width] for of_all in statistics.standardisation(setting.weights))
    rng = generator_for(study.seed, purpose="first network")
    first = TrainNetwork(
        round=0,
        network=network_numbers(first_network(widths_in(study), rng)),
        linear=start.parameters,
        centre=np.append(centre, 0.0),
        scale=np.append(scale, 1.0),
        spread=sqrt(max(statistics.loss(setting.weights)(start.parameters), _LEAST_VARIANCE)),
    )
    kept = _trained(setting, conversation, first)
    # The first network adds nothing to the linear policy.
    found = kept.network if kept and kept.surely_helps else first.network
    network = network_of(found, widths_in(study))
    return NeuralPolicy.beside(start, on_raw_contexts(network, centre, scale, first.spread))


def _trained(setting: Setting, conversation: Conversation, first: TrainNetwork) -> _HeldOut | None:
    """The network with the smallest held-out loss; rounds end when the loss stops falling."""
    plan, query = setting.study.neural, first
    best: _HeldOut | None = None
    for turn in range(plan.rounds):
        answers = conversation.require_quorum(conversation.each(query, setting.weights))
        weights = renormalised(setting.weights, answers.keys())
        latest = _held_out(query, answers, weights)
        conversation.measure(answers.exchange, loss=latest.loss)
        # The first network adds nothing yet, so its loss is only noise.
        if turn and (best is None or latest.loss < best.loss):
            best = latest
        if turn - (best.turn if best else 0) >= plan.patience:
            break
        averaged = weighted_sum(weights, {name: own.network for name, own in answers.items()})
        query = replace(query, round=turn + 1, network=averaged)
    return best


def _held_out(
    query: TrainNetwork, answers: Mapping[str, TrainedNetwork], weights: Weights
) -> _HeldOut:
    """The network at the start of the round, with its held-out loss in the mixture."""
    names = sorted(answers)  # float sums depend on order; the order of arrival must not matter
    loss = sum(weights[name] * answers[name].loss for name in names)
    variance = sum(weights[name] ** 2 * answers[name].loss_variance for name in names)
    error = sqrt(variance)
    return _HeldOut(turn=query.round, network=query.network, loss=loss, standard_error=error)
