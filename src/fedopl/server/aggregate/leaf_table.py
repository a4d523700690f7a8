"""The leaves of the learned tree: the share of people in each, and what is expected there."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedopl.messages.combining import weighted_sum
from fedopl.messages.evaluation.policy_values import Values
from fedopl.messages.trees.leaf_values import LeafValues
from fedopl.policies.tree import TreePolicy
from fedopl.results.value_tables import ALIKE, LEAF_GAIN, LEARNED, LeafRow, LeafTable
from fedopl.server.aggregate.evaluation import mixture_estimate
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.answers import Answers
from fedopl.study.mixture import Weights, renormalised


def leaf_rows(
    tree: TreePolicy | None, answers: Answers[LeafValues] | None, setting: Setting
) -> LeafTable:
    """The share of people in each leaf, and its numbers in the mixture.

    Values have the sign of the logged outcome.
    """
    if tree is None or not answers:
        return LeafTable()
    weights, sign = setting.weights, setting.study.reward_sign
    signs = dict.fromkeys(tree.action_names, sign)
    if setting.study.evaluation.is_cross_fitted:
        signs = {LEARNED: sign, LEAF_GAIN: 1.0, ALIKE: 1.0}
    shares = {name: answer.likely_shares() for name, answer in answers.items()}
    mixed = weighted_sum(renormalised(weights, answers.keys()), shares)
    return LeafTable(
        LeafRow(
            leaf=leaf,
            share=float(mixed[leaf]),
            action=action,
            # Clients do not report how many rows of a leaf lack a score.
            estimate=replace(mixture_estimate(scored, in_leaf, np.full(1, own_sign)), of_rows=None)
            if scored
            else None,
        )
        for leaf in range(len(mixed))
        for in_leaf in [{n: weights[n] * shares[n][leaf] for n in answers}]
        for number, (action, own_sign) in enumerate(signs.items())
        for scored in [_scored(answers, in_leaf, leaf, number)]
    )


def _scored(
    answers: Mapping[str, LeafValues], weights: Weights, leaf: int, number: int
) -> dict[str, Values]:
    """A number of a leaf, by client that has people in the leaf."""
    return {
        name: answer.of(leaf, number)
        for name, answer in answers.items()
        if answer.rows[leaf, number] > 0 and weights[name] > 0
    }
