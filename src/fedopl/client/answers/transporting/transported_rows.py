"""Means of rows under weights that make them look like others, and what may be released of them."""

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray, to_eight_digits
from fedopl.client.answers.asked_policies import as_counted
from fedopl.client.answers.valuing.estimate_values import ScoreSpread, most_valued
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.noise import values_with_noise
from fedopl.client.workspace import Workspace
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.target.joint_values import ValueJointly
from fedopl.messages.target.transported_values import ValueAtTarget
from fedopl.policies.kinds import POLICY_FIELDS, RULES, unpacked
from fedopl.policies.policy import Policy
from fedopl.solvers.entropy_balance import rows_behind
from fedopl.study.study import Study

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


# What both kinds of questions about a target have.
_Asked = TypeVar("_Asked", ValueAtTarget, ValueJointly)


def to_digits_that_count(query: _Asked) -> _Asked:
    """The same question to eight digits, in what is decided as in what noise follows from.

    So a study has the same answers on whatever processor its policy and models were solved.
    """
    policies: dict[str, Any] = {}
    for field in POLICY_FIELDS:
        asked = np.asarray(getattr(query, field))
        if len(asked):
            policies[field] = np.stack([as_counted(field, np.asarray(one)) for one in asked])
    others = {name: array for name, array in query.named_arrays() if name not in POLICY_FIELDS}
    rounded: dict[str, Any] = {
        name: to_eight_digits(array if array.ndim > 1 else array[None, :]).reshape(array.shape)
        for name, array in others.items()
    }
    return replace(query, **rounded, **policies)


def asked_policy(space: Workspace, query: ValueAtTarget | ValueJointly) -> Policy:
    """The policy as it would decide at the target, at any client."""
    assert space.study.target is not None  # noqa: S101  (or nobody would ask)
    for field in POLICY_FIELDS:
        for numbers in getattr(query, field):
            if field == RULES:
                raise RefusedError(RefusalCode.MALFORMED)
            try:
                policy = unpacked(field, np.asarray(numbers), space.study)
            except ValueError:
                raise RefusedError(RefusalCode.MALFORMED) from None
            return policy.at(space.study.target.client)
    raise RefusedError(RefusalCode.MALFORMED)


def decided_by(
    space: Workspace, query: ValueAtTarget | ValueJointly, contexts: FloatArray
) -> IntArray:
    """What the policy decides in each row; what only a few would get is the commonest instead.

    A policy that treats one person differently from all others would disclose that person.
    """
    decided = asked_policy(space, query).decide(contexts)
    counts = np.bincount(decided, minlength=space.study.n_actions)
    few = counts[decided] < space.limits.minimum_cell
    return np.where(few, np.argmax(counts), decided) if few.any() else decided


def modelled_scores(
    space: Workspace, query: ValueAtTarget | ValueJointly, contexts: FloatArray
) -> FloatArray:
    """μ̂(x; a) by the models that were sent (n_rows, n_actions)."""
    terms = contexts if space.study.terms is None else space.study.terms.of(contexts)
    return terms @ query.models[:, :-1].T + query.models[:, -1]


def with_policy(by_action: FloatArray, decided: IntArray) -> FloatArray:  # (n_rows, n_actions + 1)
    """The values of the decided actions, then those of every action."""
    return np.column_stack([by_action[np.arange(len(decided)), decided], by_action])


def is_enough(
    space: Workspace, units: FloatArray, n_numbers: int, *, jointly: bool = False
) -> bool:
    """Whether means under these weights rest on enough rows, and not on one for the most part.

    The server chooses what they are to look like, so it could have them look like somebody. Where
    they are means of some of many rows, whose error is that of all, only limits say what is enough.
    """
    limits = space.limits
    needed = max(0 if jointly else FEWEST_EFFECTIVE, limits.rows_needed(n_numbers))
    if limits.dominance < 1 and (units**2).max() > limits.dominance * (units**2).sum():
        return False
    return rows_behind(units) >= needed


def released(
    space: Workspace,
    query: ValueAtTarget | ValueJointly,
    rows: WeighedRows,
    spread: ScoreSpread,
    added: FloatArray | float = 0.0,
) -> dict[str, Any]:
    """Means and covariances with noise: what a few usual rows of the largest weight change them by.

    The server may have chosen whose weight that is. They are given by field, with Σ W·u, which has
    noise likewise.
    """
    means, covariances, crossed = rows.moments()
    units = rows.by_unit
    jointly = isinstance(query, ValueJointly)
    kind = "transported jointly" if jointly else "transported"
    asked = (kind, *(array for _, array in query.named_arrays()))
    draws = [space.noise_for(*asked, place) for place in range(len(means) + 1)]
    largest = float(units.max())
    influence = space.limits.value_noise * spread.usual * largest
    most = most_valued(space.study) + most_valued_there(space.study)
    means, covariances = values_with_noise(means, covariances + added, influence, draws, most)
    if jointly and influence:
        drawn = space.noise_for(*asked, "crossed").standard_normal(len(crossed))
        crossed = crossed + influence * largest * drawn
    known = rows.known
    return {
        "released": 1,
        "n_rows": len(rows.weights),
        "effective_rows": float(np.floor(rows_behind(units))),
        "known": known,
        "means": means * known,
        "covariances": covariances * np.outer(known, known),
        "crossed": crossed * known,
    }


def most_valued_there(study: Study) -> float:
    """How many policies a study may ask about at its target, each way it asks."""
    ways = [way for way in (ValueAtTarget, ValueJointly) if way.needed(study)]
    return sum(way.most_amount(study) for way in ways)


def shares_in_regions(
    space: Workspace, query: ValueAtTarget | ValueJointly, contexts: FloatArray
) -> FloatArray:  # (n_regions,)
    """The share of rows in each region, counted with noise."""
    inside = contexts @ query.regions[:, :-1].T + query.regions[:, -1] > 0
    counts = space.noisy(inside.sum(axis=0).astype(np.float64), "regions", query.regions)
    return np.minimum(counts / max(len(contexts), 1), 1.0)
