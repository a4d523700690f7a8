"""The policy of a run, with its scores of actions; refused if the policy has none."""

from dataclasses import replace

import numpy as np

from fedopl.base.errors import PolicyError
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.policy import Policy
from fedopl.policies.tree import TreePolicy
from fedopl.results.record import Record


def scored_policy(record: Record, *, priced: bool = True) -> Policy:
    """A policy whose scores are in the unit of the outcome; a tree's scores are its leaves' values.

    Values of leaves come from the held-out rows of all clients together; where values are
    cross-fitted, from the rows that the tree was learned from. They are NaN if too few rows had a
    score. Within a budget, a linear policy decides by scores minus the price of an
    action's cost. If `priced`, the policy has these reduced scores, otherwise the full scores.
    """
    policy, plan = record.policy, record.study.policy
    if policy is None:
        raise PolicyError(f"'{record.chosen}' is a function, which has no scores")
    if plan.kind == "linear" and plan.linear.oracle == "direct":
        raise PolicyError(
            "scores of a policy learned with oracle = direct say which action is best, but "
            "not by how much; to rank rows, learn one by csoaa-exact"
        )
    if plan.neural is not None and plan.neural.loss == "softmax":
        raise PolicyError(
            "scores of a network with loss = softmax say which action is best, but not by "
            "how much; to rank rows, learn one with loss = regression"
        )
    if not isinstance(policy, TreePolicy):
        is_priced = record.curve is not None and isinstance(policy, LinearPolicy)
        return policy if priced or not is_priced else record.at_price(0.0)
    if record.study.evaluation.is_cross_fitted:  # across folds, leaves are not told by action
        if record.tree is None or not record.tree.is_exact:
            return policy
        return replace(policy, leaf_values=record.tree.leaf_means(policy, record.mixture))
    if not record.leaves:
        return policy
    values = np.full((len(policy.leaves()), len(policy.action_names)), np.nan)
    for row in record.leaves:
        if row.estimate:
            place = row.leaf, policy.action_names.index(row.action)
            values[place] = record.study.reward_sign * row.estimate.value
    return replace(policy, leaf_values=values)
