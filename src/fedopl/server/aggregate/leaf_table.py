"""The leaves of the learned tree: who ends in each, and what every action is worth there."""

from collections.abc import Mapping

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.estimates import Estimate
from fedopl.messages.combining import weighted_sum
from fedopl.messages.evaluation.policy_values import Values
from fedopl.messages.trees.leaf_values import LeafValues
from fedopl.policies.tree import TreePolicy
from fedopl.results.value_tables import LeafRow
from fedopl.server.aggregate.evaluation import mixture_estimate
from fedopl.server.exchange.answers import Answers
from fedopl.study.mixture import Weights, renormalised


def leaf_rows(
    tree: TreePolicy | None, answers: Answers[LeafValues] | None, weights: Weights
) -> tuple[LeafRow, ...]:
    """Shares and values in the mixture, from every client that answered."""
    if tree is None or not answers:
        return ()
    shares = {name: _shares(answer) for name, answer in answers.items()}
    mixed = weighted_sum(renormalised(weights, answers.keys()), shares)
    return tuple(
        LeafRow(
            leaf=leaf,
            share=float(mixed[leaf]),
            action=action,
            estimate=_estimate(
                answers, {n: weights[n] * shares[n][leaf] for n in answers}, leaf, a
            ),
        )
        for leaf in range(len(mixed))
        for a, action in enumerate(tree.action_names)
    )


def _shares(answer: LeafValues) -> FloatArray:  # (n_leaves,)
    """Shares of rows; what is left is divided between suppressed leaves by noisy counts."""
    suppressed = answer.shares <= 0
    rest = max(1 - float(answer.shares.sum()), 0.0)
    likely = np.where(suppressed, answer.counts, 0.0)
    if not likely.any():
        likely = suppressed.astype(np.float64)
    return np.where(suppressed, rest * likely / max(likely.sum(), 1e-300), answer.shares)


def _estimate(
    answers: Mapping[str, LeafValues], weights: Weights, leaf: int, action: int
) -> Estimate | None:
    """The mean score, given how many people each client has in the leaf."""
    scored = {
        name: Values(
            n_rows=int(answer.rows[leaf, action]),
            degrees_of_freedom=int(answer.degrees_of_freedom[leaf, action]),
            means=answer.means[leaf, [action]],
            covariances=answer.variances[leaf, [action], None],
        )
        for name, answer in answers.items()
        if answer.rows[leaf, action] > 0 and weights[name] > 0
    }
    return mixture_estimate(scored, weights, np.ones(1)) if scored else None
