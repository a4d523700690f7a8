"""What each client is sent to solve for its personal policy: what all others learned."""

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

# A client of less weight is sent what all learned: without it nearly the same would come out, and
# of many clients not everybody's leaving has to be solved for.
LEAST_LEFT_OUT = 0.01

# The fields of a query for a personal policy.
Fields = dict[str, Any]
Curves = Mapping[str, FloatArray]  # by client, (n_strengths,): how likely strengths are


def fields_for_each(setting: Setting) -> dict[str, Fields]:
    """By client, the policy of all others and how likely strengths are by the others' rows."""
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
    """θ₋c for every client: what comes out of all other clients' sums, by their weights."""
    shared = statistics.solve(weights).parameters
    return {
        name: _without(statistics, weights, name)
        if weights[name] >= LEAST_LEFT_OUT and len(_counting(weights, name))
        else shared
        for name in sorted(weights)
    }


def _doubts(setting: Setting) -> FloatArray:  # (n_actions, numbers of doubts)
    """What the shared policy's caution takes from scores; no numbers where it has none."""
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
    """Means and deviations of terms in the mixture; zero for terms that were not chosen."""
    study, statistics = setting.study, setting.statistics
    centre, scale = statistics.standardisation(setting.weights)
    n_used = (statistics.choice or plain_terms(study)).n_terms
    scale[n_used:-1] = 0.0
    return Scaling(centre=centre, scale=scale)


def _likelihoods(
    setting: Setting, others: Mapping[str, FloatArray], scaling: Scaling
) -> dict[str, FloatArray]:  # by client, (n_strengths,)
    """How likely strengths are by the rows of each client that told enough to say so."""
    told: Mapping[str, ContrastSquares] = setting.contrasts or {}
    found = {}
    for name in sorted(set(told) & set(setting.weights)):
        sums = setting.statistics.sums[name]
        means = (sums.grams, sums.products, sums.shares)
        own = OwnSums.of(means, told[name].squares, setting.rows[name])
        found[name] = PersonalPath.of(own, others[name], scaling).log_likelihoods()
    return found


def mean_of_others(curves: Curves, client: str) -> FloatArray:  # (n_strengths,)
    """The mean of all curves but the client's own; zero where there is none."""
    rest = [curve for name, curve in sorted(curves.items()) if name != client]
    return np.mean(rest, axis=0) if rest else np.zeros(len(RIDGE_STRENGTHS))
