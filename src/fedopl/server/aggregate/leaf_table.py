"""The leaves of the learned tree: the share of people in each, and what is expected there."""

from dataclasses import replace

import numpy as np

from fedopl.messages.combining import weighted_sum
from fedopl.messages.evaluation.policy_values import ValuesByPart
from fedopl.policies.tree import TreePolicy
from fedopl.results.value_tables import ALIKE, LEAF_GAIN, LEARNED, LeafRow, LeafTable
from fedopl.server.aggregate.evaluation import mixture_estimate
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.answers import Answers
from fedopl.study.mixture import renormalised


def leaf_rows(
    tree: TreePolicy | None, answers: Answers[ValuesByPart] | None, setting: Setting
) -> LeafTable:
    """The share of people in each leaf, and its numbers in the mixture.

    These are the values of actions; or, across folds, all that is told of the trees without each.
    Values have the sign of the logged outcome.
    """
    if tree is None or not answers:
        return LeafTable()
    weights, units = setting.weights, np.diag([setting.study.reward_sign, 1.0, 1.0])
    told = [(action, place, units[0]) for place, action in enumerate(tree.action_names)]
    if setting.study.evaluation.is_cross_fitted:
        told = [
            (own, 0, unit) for own, unit in zip((LEARNED, LEAF_GAIN, ALIKE), units, strict=True)
        ]
    shares = {name: answer.likely_shares() for name, answer in answers.items()}
    mixed = weighted_sum(renormalised(weights, answers.keys()), shares)
    rows = []
    for leaf, share in enumerate(mixed.tolist()):
        inside = {name: weights[name] * shares[name][leaf] for name in answers}
        for action, place, contrast in told:
            known = {
                name: answer.part(place, leaf)
                for name, answer in answers.items()
                if answer.n_rows[leaf, place] > 0 and weights[name] > 0
            }
            found = mixture_estimate(known, inside, contrast) if known else None
            # Clients do not report how many rows of a leaf lack a score.
            estimate = found and replace(found, of_rows=None)
            rows.append(LeafRow(leaf=leaf, share=share, action=action, estimate=estimate))
    return LeafTable(rows)
