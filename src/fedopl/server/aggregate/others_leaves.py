"""What each client is sent to choose its own actions in a tree's leaves: their values to others."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.combining import weighted_sum
from fedopl.messages.learning.score_sums import ContrastSquares
from fedopl.messages.message import LARGEST_ASKED
from fedopl.policies.linear import NEVER
from fedopl.policies.trees.nodes import as_arrays, leaves_of
from fedopl.policies.trees.search import FIRST_ACTION, ROWS, WEIGHT
from fedopl.results.sums.tree_statistics import Searched
from fedopl.server.aggregate.others_policies import Fields, mean_of_others
from fedopl.server.aggregate.setting import Setting
from fedopl.solvers.personal_ridge import OwnSums, PersonalPath, Scaling, scored_in_all_rows
from fedopl.study.mixture import Weights


def leaf_fields_for_each(setting: Setting, versions: Sequence[Searched]) -> dict[str, Fields]:
    """By client, the shared tree, actions' values to others in its leaves, and likelihoods.

    Of each version: the last one is of all rows, and others go without a fold.
    """
    each = [_fields_of(setting, own, place) for place, own in enumerate(versions)]
    most = max(len(leaves_of(own.policy.root)) for own in versions)
    shared = as_arrays([own.policy.root for own in versions])
    return {
        name: {
            "shared": shared,
            "others": np.stack([_padded(own[name]["others"], most) for own in each]),
            "likelihoods": np.stack([own[name]["likelihoods"] for own in each]),
        }
        for name in sorted(setting.weights)
    }


def _padded(others: FloatArray, most: int) -> FloatArray:  # (n_actions, most)
    return np.pad(others, [(0, 0), (0, most - others.shape[1])])


def _fields_of(setting: Setting, searched: Searched, place: int) -> dict[str, Fields]:
    """The same of the version at this place.

    If thresholds moved off the grid, the sums are of the leaves before the move: there are no sums
    between two thresholds of the grid.
    """
    policy, statistics = searched.policy, searched.statistics
    sums = {
        name: _scored_sums(own, setting.study.n_actions)
        for name, own in statistics.leaf_sums(statistics.on_grid(policy)).items()
    }
    weights = setting.weights_without(setting.study.left_out[place])
    others = {name: leaf_values_of_others(sums, weights, name) for name in weights}
    curves = _likelihoods(setting, sums, others, place)
    return {
        name: {
            "others": np.maximum(others[name], -LARGEST_ASKED),
            "likelihoods": mean_of_others(curves, name),
        }
        for name in setting.weights
    }


class _LeafSums:
    """One client's sums by leaf: rows, their weight, weighted scores, weight of scored rows."""

    def __init__(
        self, n_rows: int, shares: FloatArray, scores: FloatArray, scored: FloatArray
    ) -> None:
        self.n_rows = n_rows
        self.shares = shares  # (n_leaves,)
        self.scores = scores  # (n_actions, n_leaves)
        self.scored = scored  # (n_actions, n_leaves)


def _scored_sums(numbers: FloatArray, n_actions: int) -> _LeafSums:
    """The sums from the numbers of leaves, (n_leaves, n_numbers).

    If these do not give the weight of scored rows, all rows have scores.
    """
    shares, end = numbers[:, WEIGHT], FIRST_ACTION + n_actions
    scored = (
        numbers[:, end:]
        if numbers.shape[1] > end
        else np.repeat(shares[:, None], n_actions, axis=1)
    )
    n_rows = round(float(numbers[:, ROWS].sum()))
    return _LeafSums(n_rows, shares, numbers[:, FIRST_ACTION:end].T, scored.T)


def leaf_values_of_others(
    sums: Mapping[str, _LeafSums], weights: Weights, client: str
) -> FloatArray:  # (n_actions, n_leaves)
    """The mean score of each action in each leaf, over all other clients by their weights.

    If no other client has scores in a leaf, it is the mean over all leaves. If there are no scores
    at all, it is `NEVER`.
    """
    rest = {name: weights.get(name, 0.0) for name in sums if name != client}
    if not any(rest.values()):  # no other client has weight, so use all clients
        rest = {name: weights.get(name, 0.0) for name in sums}
    scores = weighted_sum(rest, {name: sums[name].scores for name in rest})
    scored = weighted_sum(rest, {name: sums[name].scored for name in rest})
    whole = scored.sum(axis=1)
    anywhere = np.where(whole > 0, scores.sum(axis=1) / np.where(whole > 0, whole, 1.0), NEVER)
    found = np.where(scored > 0, scores / np.where(scored > 0, scored, 1.0), anywhere[:, None])
    return np.asarray(found)


def _likelihoods(
    setting: Setting, sums: Mapping[str, _LeafSums], others: Mapping[str, FloatArray], place: int
) -> dict[str, FloatArray]:  # by client, (n_strengths,)
    """The log-likelihood of each strength, by client that reported enough to compute it."""
    told: Mapping[str, ContrastSquares] = setting.contrasts or {}
    found = {}
    for name in sorted(set(told) & set(sums) & set(setting.weights)):
        own = sums[name]
        total = own.shares.sum() or 1.0
        sums_of_one = OwnSums(
            gram=np.diag(own.shares / total),
            products=own.scores / total,
            known=scored_in_all_rows(own.scored.sum(axis=1) / total),
            squares=float(told[name].squares[place]),
            n_rows=own.n_rows,
        )
        scaling = Scaling.none(len(own.shares))
        found[name] = PersonalPath.of(sums_of_one, others[name], scaling).log_likelihoods()
    return found
