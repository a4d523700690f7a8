"""The leaves of the learned tree: who ends in each, and what every action is worth there."""

from collections.abc import Mapping

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.estimates import Estimate
from fedopl.messages.combining import weighted_sum
from fedopl.messages.faults import fault_in_leaf_values
from fedopl.messages.vocabulary import LeafValues, ValueLeaves, Values
from fedopl.policies.tree import TreePolicy
from fedopl.results.leaf_rows import LeafRow
from fedopl.server.aggregate.evaluation import mixture_estimate
from fedopl.server.exchange.conversation import Answers, Conversation, Question
from fedopl.study.mixture import Weights, renormalised


def valuing_leaves(tree: TreePolicy) -> Question:
    """Ask about every leaf of this tree."""
    return Question(ValueLeaves, LeafValues, {"tree": tree.numbers()})


def leaf_rows(
    tree: TreePolicy,
    conversation: Conversation,
    answers: Answers[LeafValues] | None,
    weights: Weights,
) -> tuple[LeafRow, ...]:
    """Shares and values in the mixture, from everybody who told."""
    if answers is None:
        return ()
    n_leaves = len(tree.leaves())
    usable = conversation.drop(answers, lambda answer: fault_in_leaf_values(answer, n_leaves))
    if not usable:
        return ()
    shares = {name: _shares(answer) for name, answer in usable.items()}
    mixed = weighted_sum(renormalised(weights, usable.keys()), shares)
    return tuple(
        LeafRow(
            leaf=leaf,
            share=float(mixed[leaf]),
            action=action,
            estimate=_estimate(usable, {n: weights[n] * shares[n][leaf] for n in usable}, leaf, a),
        )
        for leaf in range(n_leaves)
        for a, action in enumerate(tree.action_names)
    )


def _shares(answer: LeafValues) -> FloatArray:  # (n_leaves,)
    """Shares of rows; what a client hid is divided between the leaves it hid by rounded counts."""
    hidden = answer.shares <= 0
    rest = max(1 - float(answer.shares.sum()), 0.0)
    likely = np.where(hidden, answer.counts, 0.0)
    if not likely.any():
        likely = hidden.astype(np.float64)
    return np.where(hidden, rest * likely / max(likely.sum(), 1e-300), answer.shares)


def _estimate(
    answers: Mapping[str, LeafValues], weights: Weights, leaf: int, action: int
) -> Estimate | None:
    """The mean score, given how many people each client has in the leaf."""
    told = {
        name: Values(
            study=answer.study,
            exchange=answer.exchange,
            n_rows=int(answer.rows[leaf, action]),
            degrees_of_freedom=int(answer.degrees_of_freedom[leaf, action]),
            means=answer.means[leaf, [action]],
            covariances=answer.variances[leaf, [action], None],
        )
        for name, answer in answers.items()
        if answer.rows[leaf, action] > 0 and weights[name] > 0
    }
    return mixture_estimate(told, weights, np.ones(1)) if told else None
