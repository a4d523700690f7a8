"""The client's personal policy, and what it is worth beside others; it never leaves itself."""

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.client.answers.valuing.estimate_values import values_on_split
from fedopl.client.local.personal_policy import contrast_squares
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.personal_values import ValuePersonal
from fedopl.messages.evaluation.policy_values import Values
from fedopl.messages.learning.contrast_squares import ContrastSquares, SumContrasts
from fedopl.messages.message import LARGEST_ASKED, RowSplit
from fedopl.policies.linear import NEVER, LinearPolicy
from fedopl.policies.policy import Policy
from fedopl.solvers.personal_ridge import (
    OwnSums,
    PersonalPath,
    Scaling,
    best_strength,
    scored_in_all_rows,
)


def sum_contrasts(space: Workspace, _query: SumContrasts) -> ContrastSquares:
    """How far scores of a row lie apart, on average over training rows."""
    space.check_rows_for_sums()
    return ContrastSquares(squares=_own_sums(space).squares)


def answer(space: Workspace, query: ValuePersonal) -> Values:
    """Solve for the personal policy, value it beside the others, and keep it at home."""
    policy = personal_policy(space, query)
    values = values_on_split(space, query, RowSplit.EVALUATION, further=(policy,))
    space.keep_personal(policy)
    return values


def personal_policy(space: Workspace, query: ValuePersonal) -> Policy:
    """Everybody else's policy, moved toward own rows as far as these and the others speak for it.

    It follows from the sums that were released and from the query alone.
    """
    unknown = query.others[:, -1] <= -LARGEST_ASKED
    others: FloatArray = np.array(query.others)
    others[unknown, -1] = NEVER
    scaling = Scaling(centre=query.centre, scale=query.scale)
    path = PersonalPath.of(_own_sums(space), others, scaling)
    strength = best_strength(path.log_likelihoods(), query.likelihoods)
    return LinearPolicy.from_numbers(path.at(strength), space.study)


def _own_sums(space: Workspace) -> OwnSums:
    means = space.score_means(space.scored)
    known = scored_in_all_rows(means.shares)
    squares = contrast_squares(space.chunks, known)
    return OwnSums.of((means.grams, means.products, means.shares), squares, space.n_training)
