"""The client's personal policy, and what it is worth beside others; it never leaves itself."""

import numpy as np

from fedopl.base.arrays import FloatArray, to_eight_digits
from fedopl.client.answers.valuing.estimate_values import values_on_split
from fedopl.client.local.personal_policy import PersonalTask, client_sums
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.personal_values import ValuePersonal
from fedopl.messages.evaluation.policy_values import Values
from fedopl.messages.learning.contrast_squares import ContrastSquares, SumContrasts
from fedopl.messages.message import LARGEST_ASKED, RowSplit
from fedopl.policies.bent import BentPolicy
from fedopl.policies.linear import NEVER, LinearPolicy
from fedopl.policies.policy import Policy
from fedopl.solvers.personal_ridge import Scaling


def sum_contrasts(space: Workspace, _query: SumContrasts) -> ContrastSquares:
    """How far scores of a row lie apart, on average over training rows."""
    space.check_rows_for_sums()
    return ContrastSquares(squares=client_sums(space.chunks, space.study_rows).squares)


def answer(space: Workspace, query: ValuePersonal) -> Values:
    """Solve for the personal policy, value it beside the others, and keep it at home."""
    policy = personal_policy(space, query)
    values = values_on_split(space, query, RowSplit.EVALUATION, further=(policy,))
    space.keep_personal(policy)
    return values


def personal_policy(space: Workspace, query: ValuePersonal) -> Policy:
    """Everybody else's policy, moved toward own rows as far as these and others speak for it."""
    others: FloatArray = np.array(query.others)
    others[others[:, -1] <= -LARGEST_ASKED, -1] = NEVER
    rests_on_others = space.study.nuisances.kind == "federated"
    task = PersonalTask(
        study=space.study,
        rows=space.study_rows,
        scored=(space.chunks, space.own_chunks) if rests_on_others else (space.chunks,),
        others=others,
        scaling=Scaling(centre=query.centre, scale=query.scale),
        likelihoods=query.likelihoods,
    )
    policy = task.solve()
    if isinstance(policy, BentPolicy):
        return policy
    # As policies that are asked about count, so that the same one has the same noise.
    return LinearPolicy.from_numbers(to_eight_digits(policy.numbers()), space.study)
