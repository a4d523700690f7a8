"""What each client is sent to choose its own candidate: the candidates' values to all others."""

from collections.abc import Mapping

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.combining import weighted_sum
from fedopl.messages.evaluation.policy_values import Values
from fedopl.server.aggregate.others_policies import Fields, mean_of_others
from fedopl.solvers.personal_choice import ChoicePath
from fedopl.study.mixture import Weights, renormalised


def choice_fields(n: int, told: Mapping[str, Values], weights: Weights) -> dict[str, Fields]:
    """By client, n candidates' values to others on training rows, and likelihoods of strengths.

    A strength says how far a client departs from the others. At zero their values decide; the
    larger it is, the more the client's own values count.
    """
    means = {client: values.means[:n] for client, values in told.items()}
    others = {client: values_to_others(means, weights, client) for client in weights}
    curves = {
        client: ChoicePath(
            own=means[client],
            covariances=values.covariances[:n, :n],
            n_rows=values.n_rows,
            others=others[client],
        ).log_likelihoods()
        for client, values in sorted(told.items())
        if client in weights
    }
    return {
        client: {
            "others": others[client][None],
            "likelihoods": mean_of_others(curves, client),
        }
        for client in sorted(weights)
    }


def values_to_others(
    means: Mapping[str, FloatArray], weights: Weights, client: str
) -> FloatArray:  # (n_candidates,)
    """The weighted mean of the candidates' values at all other clients that answered."""
    rest = {name: weights.get(name, 0.0) for name in means if name != client}
    if not any(rest.values()):  # no other client has weight, so use all clients
        rest = {name: weights.get(name, 0.0) for name in means}
    shares = renormalised(rest, rest.keys())
    return np.asarray(weighted_sum(shares, {name: means[name] for name in rest}))
