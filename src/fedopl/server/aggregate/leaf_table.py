"""The leaves of the learned tree: the share of people in each, and the value of every action."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedopl.messages.combining import weighted_sum
from fedopl.messages.evaluation.policy_values import Values
from fedopl.messages.trees.leaf_values import LeafValues
from fedopl.policies.tree import TreePolicy
from fedopl.results.value_tables import LeafRow
from fedopl.server.aggregate.evaluation import mixture_estimate
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.answers import Answers
from fedopl.study.mixture import Weights, renormalised


def leaf_rows(
    tree: TreePolicy | None, answers: Answers[LeafValues] | None, setting: Setting
) -> tuple[LeafRow, ...]:
    """The share of people and the value of each action in each leaf, in the mixture.

    Values have the sign of the logged outcome.
    """
    if tree is None or not answers:
        return ()
    weights, sign = setting.weights, np.full(1, setting.study.reward_sign)
    shares = {name: answer.likely_shares() for name, answer in answers.items()}
    mixed = weighted_sum(renormalised(weights, answers.keys()), shares)
    return tuple(
        LeafRow(
            leaf=leaf,
            share=float(mixed[leaf]),
            action=action,
            # Clients do not report how many rows of a leaf lack a score.
            estimate=replace(mixture_estimate(scored, in_leaf, sign), of_rows=None)
            if scored
            else None,
        )
        for leaf in range(len(mixed))
        for in_leaf in [{n: weights[n] * shares[n][leaf] for n in answers}]
        for a, action in enumerate(tree.action_names)
        for scored in [_scored(answers, in_leaf, leaf, a)]
    )


def _scored(
    answers: Mapping[str, LeafValues], weights: Weights, leaf: int, action: int
) -> dict[str, Values]:
    """The mean scores of an action in a leaf, by client that has people in the leaf."""
    return {
        name: Values(
            n_rows=int(answer.rows[leaf, action]),
            of_rows=int(answer.rows[leaf, action]),
            degrees_of_freedom=int(answer.degrees_of_freedom[leaf, action]),
            means=answer.means[leaf, [action]],
            covariances=answer.variances[leaf, [action], None],
        )
        for name, answer in answers.items()
        if answer.rows[leaf, action] > 0 and weights[name] > 0
    }
