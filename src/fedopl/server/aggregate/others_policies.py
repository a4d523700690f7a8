"""What each client is sent to solve for its personal policy: the policy of all others.

A strength says how far a personal policy departs from that of the others. At zero it is the same;
the larger the strength, the more the client's own rows count.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.learning.score_sums import ContrastSquares
from fedopl.messages.message import LARGEST_ASKED
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.results.sums.term_choice import plain_terms
from fedopl.server.aggregate.setting import Setting
from fedopl.solvers.personal_ridge import RIDGE_STRENGTHS, OwnSums, PersonalPath, Scaling
from fedopl.study.mixture import Weights, renormalised

# A client with less weight is sent the policy of all clients. The policy without it would be nearly
# the same. With many clients, this saves a solution for each of them.
LEAST_LEFT_OUT = 0.01

# The fields of a query for a personal policy.
Fields = dict[str, Any]
Curves = Mapping[str, FloatArray]  # by client, (n_strengths,): log-likelihoods of strengths


def fields_for_each(setting: Setting, versions: Sequence[ScoreStatistics]) -> dict[str, Fields]:
    """By client, the policy of all others, and the likelihoods of strengths by others' rows.

    Of each version: the last one is of all rows, and others go without a fold.
    """
    return by_version([_fields_of(setting, own, place) for place, own in enumerate(versions)])


def by_version(each: Sequence[Mapping[str, Fields]]) -> dict[str, Fields]:
    """By client, the fields of all versions, one more axis first."""
    return {
        name: {field: np.stack([own[name][field] for own in each]) for field in fields}
        for name, fields in sorted(each[0].items())
    }


def _fields_of(setting: Setting, statistics: ScoreStatistics, place: int) -> dict[str, Fields]:
    """The same of the version at this place."""
    mixture = setting.weights_without(setting.study.left_out[place])
    weights = renormalised(mixture, statistics.sums.keys())
    scaling, others = _scaling(statistics, weights), policies_of_others(statistics, weights)
    shared, doubts = statistics.solve(weights), np.zeros((setting.study.n_actions, 0))
    if setting.study.is_cautious:  # the numbers by which a cautious shared policy lowers scores
        doubts = shared.numbers()[:, shared.parameters.shape[1] :]
    curves = _likelihoods(setting.contrasts or {}, statistics, others, scaling, place)
    return {
        name: {
            "others": np.hstack(
                [np.maximum(others.get(name, shared.parameters), -LARGEST_ASKED), doubts]
            ),
            "centre": scaling.centre,
            "scale": scaling.scale,
            "likelihoods": mean_of_others(curves, name),
        }
        for name in setting.weights
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


def _counting(weights: Weights, client: str) -> list[str]:
    return [name for name, weight in sorted(weights.items()) if weight > 0 and name != client]


def _without(statistics: ScoreStatistics, weights: Weights, client: str) -> FloatArray:
    names = _counting(weights, client)
    left = {name: weights[name] for name in names}
    return statistics.restricted(names).solve(left).parameters


def _scaling(statistics: ScoreStatistics, weights: Weights) -> Scaling:
    """Means and deviations of terms in the mixture; the deviation is zero for unchosen terms."""
    centre, scale = statistics.standardisation(weights)
    terms, n_used = (
        statistics.study.terms,
        (statistics.choice or plain_terms(statistics.study)).n_terms,
    )
    used = terms.usable(n_used, [statistics.screening]) if terms else np.arange(n_used)
    unused = np.ones(len(scale), dtype=bool)
    unused[[*used, -1]] = False
    scale[unused] = 0.0
    return Scaling(centre=centre, scale=scale)


def _likelihoods(
    told: Mapping[str, ContrastSquares],
    statistics: ScoreStatistics,
    others: Mapping[str, FloatArray],
    scaling: Scaling,
    place: int,
) -> dict[str, FloatArray]:  # by client, (n_strengths,)
    """The log-likelihood of each strength, by client that reported enough to compute it."""
    found = {}
    for name in sorted(set(told) & set(others)):
        sums = statistics.sums[name]
        means, squares = (sums.grams, sums.products, sums.shares), float(told[name].squares[place])
        own = OwnSums.of(means, squares, statistics.rows[name])
        found[name] = PersonalPath.of(own, others[name], scaling).log_likelihoods()
    return found


def mean_of_others(curves: Curves, client: str) -> FloatArray:  # (n_strengths,)
    """The mean of all curves but the client's own; zeros if there is no other."""
    rest = [curve for name, curve in sorted(curves.items()) if name != client]
    return np.mean(rest, axis=0) if rest else np.zeros(len(RIDGE_STRENGTHS))
