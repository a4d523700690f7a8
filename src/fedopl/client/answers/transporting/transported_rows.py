"""Means of rows under weights that make them look like others."""

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.workspace import Workspace
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.target.joint_values import ValueJointly
from fedopl.messages.target.transported_values import ValueAtTarget
from fedopl.policies.kinds import POLICY_FIELDS, RULES, unpacked
from fedopl.policies.policy import Policy
from fedopl.solvers.entropy_balance import rows_behind

# The fewest effective rows behind such a mean, whatever the limits are. With fewer, its standard
# error says little.
FEWEST_EFFECTIVE = 10


@dataclass(frozen=True, eq=False, kw_only=True)
class WeighedRows:
    """Values of rows, NaN where there are none, and weights that add up to one."""

    values: FloatArray  # (n_rows, n_actions + 1)
    weights: FloatArray  # (n_rows,)
    groups: IntArray | None  # (n_rows,)
    share: float = 1.0  # that these rows have of all weight, where others count beside them

    @property
    def by_unit(self) -> FloatArray:  # (n_units,)
        """The weights of rows, or of groups where rows come in some."""
        return weights_by_unit(self.weights, self.groups)

    @property
    def known(self) -> FloatArray:  # (n_actions + 1,)
        """1 for an action if every row has a value for it, and for the policy if all actions are 1.

        A flag that depended on the policy's decisions would disclose for whom it decides so.
        """
        arms = np.isfinite(self.values[:, 1:]).all(axis=0)
        return np.concatenate([[arms.all()], arms]).astype(np.float64)

    def moments(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Weighted means, their covariances by leaving out each row, or group, in turn, and Σ W·u.

        Σ_g u_g·u_gᵀ with u_g = Σ_{i∈g} w_i·(v_i − mean)/(1 − W_g): a row of much weight is not
        taken for typical of others. W_g is the group's share of all weight there is.
        """
        values = np.where(self.known > 0, self.values, 0.0)
        means = self.weights @ values
        moved = self.weights[:, None] * (values - means)
        if self.groups is not None:
            _, codes = np.unique(self.groups, return_inverse=True)
            by_group = np.zeros((int(codes.max()) + 1, moved.shape[1]))
            np.add.at(by_group, codes, moved)
            moved = by_group
        units = self.by_unit
        without = 1 - self.share * units
        moved = moved / without[:, None]
        return means, moved.T @ moved, (units / without) @ moved


def weights_by_unit(weights: FloatArray, groups: IntArray | None) -> FloatArray:  # (n_units,)
    """The weights of rows, or of groups where rows come in some."""
    if groups is None:
        return weights
    _, codes = np.unique(groups, return_inverse=True)
    return np.asarray(np.bincount(codes, weights), np.float64)


def asked_versions(space: Workspace, query: ValueAtTarget | ValueJointly) -> list[Policy]:
    """The versions of the policy as they would decide at the target, at any client."""
    assert space.study.target is not None  # noqa: S101  (or nobody would ask)
    found: list[Policy] = []
    for field in POLICY_FIELDS:
        for numbers in getattr(query, field):
            if field == RULES:
                raise RefusedError(RefusalCode.MALFORMED)
            try:
                policy = unpacked(field, np.asarray(numbers), space.study)
            except ValueError:
                raise RefusedError(RefusalCode.MALFORMED) from None
            found.append(policy.at(space.study.target.client))
    ((*versions,),) = query.of_candidates(found)
    return versions * (len(query.models) // len(versions))


def decided_by(
    space: Workspace, query: ValueAtTarget | ValueJointly, contexts: FloatArray
) -> IntArray:  # (n_versions, n_rows)
    """What each version of the policy decides in each row."""
    return np.stack([policy.decide(contexts) for policy in asked_versions(space, query)])


def modelled_scores(
    space: Workspace, query: ValueAtTarget | ValueJointly, contexts: FloatArray
) -> FloatArray:  # (n_versions, n_rows, n_actions)
    """μ̂(x; a) by the models that were sent."""
    terms = contexts if space.study.terms is None else space.study.terms.of(contexts)
    return np.stack([terms @ models[:, :-1].T + models[:, -1] for models in query.models])


def share_apart(decided: IntArray, weights: FloatArray) -> float:
    """How often two versions (n_versions, n_rows) decide differently, under these weights."""
    pairs = [weights @ (one != other) for one, other in combinations(decided, 2)]
    return float(np.mean(pairs)) if pairs else 0.0


def with_policy(by_action: FloatArray, decided: IntArray) -> FloatArray:  # (n_rows, n_actions + 1)
    """The values of the decided actions, then those of every action."""
    return np.column_stack([by_action[np.arange(len(decided)), decided], by_action])


def is_enough(space: Workspace, units: FloatArray, *, jointly: bool = False) -> bool:
    """Whether means under these weights rest on enough rows.

    The server chooses what they are to look like, so it could have them look like somebody. Where
    they are means of some of many rows, whose error is that of all, only limits say what is enough.
    """
    least = space.limits.minimum_cell
    return rows_behind(units) >= (least if jointly else max(least, FEWEST_EFFECTIVE))


def as_means(rows: WeighedRows, added: FloatArray | float = 0.0) -> dict[str, Any]:
    """Means and covariances by field, with Σ W·u."""
    means, covariances, crossed = rows.moments()
    known = rows.known
    return {
        "released": 1,
        "n_rows": len(rows.weights),
        "effective_rows": rows_behind(rows.by_unit),
        "known": known,
        "means": means * known,
        "covariances": (covariances + added) * np.outer(known, known),
        "crossed": crossed * known,
    }


def shares_in_regions(
    space: Workspace, query: ValueAtTarget | ValueJointly, contexts: FloatArray
) -> FloatArray:  # (n_regions,)
    """The share of rows in each region; none where only a few are in it."""
    inside = contexts @ query.regions[:, :-1].T + query.regions[:, -1] > 0
    counts = inside.sum(axis=0)
    return np.where(counts < space.limits.minimum_cell, 0.0, counts / max(len(contexts), 1))
