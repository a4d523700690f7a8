"""What each client is sent to solve for its personal policy: the policy of all others.

A strength says how far a personal policy departs from that of the others. At zero it is the same;
the larger the strength, the more the client's own rows count.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.learning.contrast_squares import ContrastSquares
from fedopl.messages.message import LARGEST_ASKED
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.results.sums.term_choice import plain_terms
from fedopl.server.aggregate.setting import Setting
from fedopl.solvers.personal_ridge import RIDGE_STRENGTHS, OwnSums, PersonalPath, Scaling
from fedopl.study.mixture import Weights

# A client with less weight is sent the policy of all clients. The policy without it would be nearly
# the same. With many clients, this saves a solution for each of them.
LEAST_LEFT_OUT = 0.01

# The fields of a query for a personal policy.
Fields = dict[str, Any]
Curves = Mapping[str, FloatArray]  # by client, (n_strengths,): log-likelihoods of strengths


def fields_for_each(setting: Setting) -> dict[str, Fields]:
    """By client, the policy of all others, and the likelihoods of strengths by others' rows."""
    scaling, others = _scaling(setting), policies_of_others(setting.statistics, setting.weights)
    curves = _likelihoods(setting, others, scaling)
    doubts = _doubts(setting)
    return {
        name: {
            "others": np.hstack([np.maximum(others[name], -LARGEST_ASKED), doubts]),
            "centre": scaling.centre,
            "scale": scaling.scale,
            "likelihoods": mean_of_others(curves, name),
        }
        for name in sorted(setting.weights)
    }


def policies_of_others(
    statistics: ScoreStatistics, weights: Weights
) -> dict[str, FloatArray]:  # by client, (n_actions, n_terms + 1)
    """θ₋c for every client: the solution from all other clients' sums, by their weights."""
    shared = statistics.solve(weights).parameters
    return {
        name: _without(statistics, weights, name)
        if weights[name] >= LEAST_LEFT_OUT and len(_counting(weights, name))
        else shared
        for name in sorted(weights)
    }


def _doubts(setting: Setting) -> FloatArray:  # (n_actions, numbers of doubts)
    """The numbers by which a cautious shared policy lowers scores; none if it is not cautious."""
    if not setting.study.is_cautious:
        return np.zeros((setting.study.n_actions, 0))
    shared = setting.statistics.solve(setting.weights)
    return np.asarray(shared.numbers()[:, shared.parameters.shape[1] :])


def _counting(weights: Weights, client: str) -> list[str]:
    return [name for name, weight in sorted(weights.items()) if weight > 0 and name != client]


def _without(statistics: ScoreStatistics, weights: Weights, client: str) -> FloatArray:
    names = _counting(weights, client)
    left = {name: weights[name] for name in names}
    return statistics.restricted(names).solve(left).parameters


def _scaling(setting: Setting) -> Scaling:
    """Means and deviations of terms in the mixture; the deviation is zero for unchosen terms."""
    study, statistics = setting.study, setting.statistics
    centre, scale = statistics.standardisation(setting.weights)
    n_used = (statistics.choice or plain_terms(study)).n_terms
    scale[n_used:-1] = 0.0
    return Scaling(centre=centre, scale=scale)


def _likelihoods(
    setting: Setting, others: Mapping[str, FloatArray], scaling: Scaling
) -> dict[str, FloatArray]:  # by client, (n_strengths,)
    """The log-likelihood of each strength, by client that reported enough to compute it."""
    told: Mapping[str, ContrastSquares] = setting.contrasts or {}
    found = {}
    for name in sorted(set(told) & set(setting.weights)):
        sums = setting.statistics.sums[name]
        means = (sums.grams, sums.products, sums.shares)
        own = OwnSums.of(means, told[name].squares, setting.rows[name])
        found[name] = PersonalPath.of(own, others[name], scaling).log_likelihoods()
    return found


def mean_of_others(curves: Curves, client: str) -> FloatArray:  # (n_strengths,)
    """The mean of all curves but the client's own; zeros if there is no other."""
    rest = [curve for name, curve in sorted(curves.items()) if name != client]
    return np.mean(rest, axis=0) if rest else np.zeros(len(RIDGE_STRENGTHS))
