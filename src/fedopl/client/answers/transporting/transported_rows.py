"""Means of rows under weights that make them look like others, and what may be released of them."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray, to_eight_digits
from fedopl.client.answers.asked_policies import as_counted
from fedopl.client.answers.valuing.estimate_values import ScoreSpread, most_valued
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.noise import values_with_noise
from fedopl.client.workspace import Workspace
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.target.transported_values import TransportedValues, ValueAtTarget
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

    @property
    def by_unit(self) -> FloatArray:  # (n_units,)
        """The weights of rows, or of groups where rows are in groups."""
        if self.groups is None:
            return self.weights
        _, codes = np.unique(self.groups, return_inverse=True)
        return np.asarray(np.bincount(codes, self.weights), np.float64)

    @property
    def known(self) -> FloatArray:  # (n_actions + 1,)
        """1 for an action if every row has a value for it, and for the policy if all actions are 1.

        A flag that depended on the policy's decisions would disclose for whom it decides so.
        """
        arms = np.isfinite(self.values[:, 1:]).all(axis=0)
        return np.concatenate([[arms.all()], arms]).astype(np.float64)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Weighted means, and their covariances from leaving out each row, or group, in turn.

        Σ_g u_g·u_gᵀ with u_g = Σ_{i∈g} w_i·(v_i − mean)/(1 − W_g). The division keeps a row of much
        weight from being taken as typical of others.
        """
        values = np.where(self.known > 0, self.values, 0.0)
        means = self.weights @ values
        moved = self.weights[:, None] * (values - means)
        if self.groups is not None:
            _, codes = np.unique(self.groups, return_inverse=True)
            by_group = np.zeros((int(codes.max()) + 1, moved.shape[1]))
            np.add.at(by_group, codes, moved)
            moved = by_group
        moved = moved / (1 - self.by_unit)[:, None]
        return means, moved.T @ moved


def to_digits_that_count(query: ValueAtTarget) -> ValueAtTarget:
    """The same query to eight digits, both for decisions and for the noise derived from it.

    So a study has the same answers on whatever processor its policy and models were solved.
    """
    policies: dict[str, Any] = {}
    for field in POLICY_FIELDS:
        asked = np.asarray(getattr(query, field))
        if len(asked):
            policies[field] = np.stack([as_counted(field, np.asarray(one)) for one in asked])
    return replace(
        query,
        models=to_eight_digits(query.models),
        means=to_eight_digits(query.means[None, :])[0],
        squares=to_eight_digits(query.squares[None, :])[0],
        regions=to_eight_digits(query.regions),
        **policies,
    )


def asked_policy(space: Workspace, query: ValueAtTarget) -> Policy:
    """The policy of the query as it would decide at the target, whichever client answers."""
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


def decided_by(space: Workspace, query: ValueAtTarget, contexts: FloatArray) -> IntArray:
    """The policy's decision in each row; one that few rows get is replaced by the commonest.

    A policy that treats one person differently from all others would disclose that person.
    """
    decided = asked_policy(space, query).decide(contexts)
    counts = np.bincount(decided, minlength=space.study.n_actions)
    few = counts[decided] < space.limits.minimum_cell
    return np.where(few, np.argmax(counts), decided) if few.any() else decided


def modelled_scores(space: Workspace, query: ValueAtTarget, contexts: FloatArray) -> FloatArray:
    """μ̂(x; a) by the models of the query (n_rows, n_actions)."""
    terms = contexts if space.study.terms is None else space.study.terms.of(contexts)
    return terms @ query.models[:, :-1].T + query.models[:, -1]


def with_policy(by_action: FloatArray, decided: IntArray) -> FloatArray:  # (n_rows, n_actions + 1)
    """The values of the decided actions, then those of every action."""
    return np.column_stack([by_action[np.arange(len(decided)), decided], by_action])


def may_be_released(space: Workspace, rows: WeighedRows, n_numbers: int) -> bool:
    """Whether means under these weights rest on enough rows, and not mostly on one.

    The server chooses what the rows shall look like. So it could make them look like one person.
    """
    units = rows.by_unit
    limits = space.limits
    needed = max(FEWEST_EFFECTIVE, limits.rows_needed(n_numbers))
    if limits.dominance < 1 and (units**2).max() > limits.dominance * (units**2).sum():
        return False
    return rows_behind(units) >= needed


def released(
    space: Workspace,
    query: ValueAtTarget,
    rows: WeighedRows,
    spread: ScoreSpread,
    added: FloatArray | float = 0.0,
) -> TransportedValues:
    """Means and covariances with noise.

    The noise is as large as the change that a few usual rows of the largest weight make. The server
    may have chosen whose weight that is.
    """
    means, covariances = rows.moments()
    units = rows.by_unit
    asked = ("transported", *(array for _, array in query.named_arrays()))
    draws = [space.noise_for(*asked, place) for place in range(len(means) + 1)]
    influence = space.limits.value_noise * spread.usual * float(units.max())
    most = most_valued(space.study) + ValueAtTarget.most_amount(space.study)
    means, covariances = values_with_noise(means, covariances + added, influence, draws, most)
    known = rows.known
    return TransportedValues(
        released=1,
        n_rows=len(rows.weights),
        effective_rows=float(np.floor(rows_behind(units))),
        known=known,
        means=means * known,
        covariances=covariances * np.outer(known, known),
        shares=np.empty(0),
    )


def shares_in_regions(
    space: Workspace, query: ValueAtTarget, contexts: FloatArray
) -> FloatArray:  # (n_regions,)
    """The share of rows in each region, counted with noise."""
    inside = contexts @ query.regions[:, :-1].T + query.regions[:, -1] > 0
    counts = space.noisy(inside.sum(axis=0).astype(np.float64), "regions", query.regions)
    return np.minimum(counts / max(len(contexts), 1), 1.0)
