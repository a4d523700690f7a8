"""Values of policies, the client's personal one among them; that policy itself never leaves."""

from functools import partial

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.client.answers.asked_policies import deciders, policies_in
from fedopl.client.answers.learning import check_terms
from fedopl.client.answers.valuing.estimate_values import by_part, values_by_query, values_on
from fedopl.client.answers.valuing.value_in_leaves import values_in_leaves
from fedopl.client.answers.valuing.value_spending import spending_by_query
from fedopl.client.local.local_policy import ScoredChunks
from fedopl.client.local.personal_policy import (
    PersonalTask,
    PersonalTreeTask,
    client_sums_without,
    scored_actions,
    squares_apart,
)
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.policy_values import (
    NO_ACTION,
    Value,
    Values,
    ValuesByPart,
)
from fedopl.messages.learning.score_sums import ContrastSquares, SumContrasts
from fedopl.messages.message import LARGEST_ASKED, RowSplit
from fedopl.policies.cautious import CautiousPolicy
from fedopl.policies.linear import NEVER
from fedopl.policies.policy import Policy
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import leaves_of
from fedopl.solvers.personal_choice import ChoicePath
from fedopl.solvers.personal_ridge import OwnSums, Scaling, Strengths


def sum_contrasts(space: Workspace, _query: SumContrasts) -> ContrastSquares:
    """How far apart the scores of a row lie, on average over training rows."""
    check_terms(space)
    left_out = space.study.left_out
    if space.study.policy.has_leaves:
        told = [_squares_of_leaves(space, without) for without in left_out]
    else:
        each = client_sums_without(space.chunks, space.study_rows, left_out)
        told = [own.squares for own in each]
    return ContrastSquares(squares=np.array(told))


def _squares_of_leaves(space: Workspace, without: int | None) -> float:
    rows = partial(space.scored_rows, without)
    return squares_apart(rows, scored_actions(rows, space.study.n_actions))


def answer(space: Workspace, query: Value) -> ValuesByPart:
    """What policies gain and spend, or are worth in leaves, or are worth together."""
    if query.against != NO_ACTION:
        return spending_by_query(space, query)
    if query.is_of_leaves:
        return values_in_leaves(space, query)
    found = _together(space, query)
    return by_part([[found]], of_rows=found.of_rows)


def _together(space: Workspace, query: Value) -> Values:
    """The values of the policies asked about and, if others' numbers came along, of its personal.

    That one is made here, valued behind the others, and stored at the client.
    """
    if not query.is_personal:
        return values_by_query(space, query)
    places = range(len(space.study.left_out))
    if space.study.policy.kind == "finite":
        candidates = policies_in(query)
        *chosen, last = [candidates[personal_choice(space, query, place)] for place in places]
        values = values_by_query(space, query, [deciders(space, chosen or [last])])
        space.keep_candidate(last)
        return values
    if space.study.policy.kind == "tree":
        *by_fold, policy = [personal_tree(space, query, place) for place in places]
    else:
        *by_fold, policy = linear_personal_policies(space, query)
    decide = [one.at(space.client).decide for one in by_fold or [policy]]
    values = values_by_query(space, query, [decide])
    space.keep_personal(policy)
    return values


def linear_personal_policies(space: Workspace, query: Value) -> list[Policy]:
    """The policy of all others, moved toward own rows as far as own and others' rows support it.

    The last one is of all rows; if values are cross-fitted, the others go without a fold.
    """
    study, rows = space.study, space.study_rows
    sources = (space.chunks, space.own_chunks) if _rests_on_others(space) else (space.chunks,)
    scored = tuple(rows.kept(one) for one in sources)
    each = [client_sums_without(one, rows, study.left_out) for one in scored]
    return [
        _personal_policy(space, query, version, scored, own)
        for version, own in enumerate(zip(*each, strict=True))
    ]


def _personal_policy(
    space: Workspace,
    query: Value,
    version: int,
    scored: tuple[ScoredChunks, ...],
    own: tuple[OwnSums, ...],
) -> Policy:
    study, sent = space.study, query.others[version]
    width = query.scale.shape[1]
    others = CautiousPolicy.from_numbers(sent, study) if study.is_cautious else None
    task = PersonalTask(
        study=study,
        rows=space.study_rows,
        scored=scored,
        own=own,
        others=_with_never(sent[:, :width]),
        doubts=others.doubts if others else None,
        scaling=Scaling(centre=query.centre[version], scale=query.scale[version]),
        likelihoods=query.likelihoods[version],
        without=study.left_out[version],
    )
    return task.solve()


def personal_tree(space: Workspace, query: Value, version: int) -> Policy:
    """The shared tree with the actions that own rows and others' rows support, by version."""
    study, without = space.study, space.study.left_out[version]
    alone = space.local_policy if without is None else space.local_policies_by_fold[without]
    if not isinstance(alone, TreePolicy):
        raise TypeError(f"alone, a client of this study learns a tree, came a {alone.kind} policy")
    root = query.roots(study)[version]
    sources = [space.chunks, *([space.own_chunks] if _rests_on_others(space) else ())]
    kept = [space.study_rows.kept(partial(space.obeyed.to_sum, one, without)) for one in sources]
    task = PersonalTreeTask(
        study=study,
        scored=kept,
        n_rows=space.n_rows(RowSplit.TRAINING, without),
        root=root,
        own_root=alone.root,
        others=_with_never(query.others[version][:, : len(leaves_of(root))]),
        likelihoods=query.likelihoods[version],
    )
    return task.solve()


def personal_choice(space: Workspace, query: Value, version: int = -1) -> int:
    """The place of the candidate that own training rows and others' values support.

    The last version is of all rows; if values are cross-fitted, the others go without a fold.
    """
    asked = [[one] for one in deciders(space, policies_in(query))]
    found = values_on(space, RowSplit.TRAINING, asked, space.study.left_out[version])
    n = query.n_policies
    path = ChoicePath(
        own=found.means[:n],
        covariances=found.covariances[:n, :n],
        n_rows=found.n_rows,
        others=query.others[version, 0],
    )
    strengths = Strengths(own=path.log_likelihoods(), others=query.likelihoods[version])
    return int(np.argmax(path.mean(strengths.weights)))


def _rests_on_others(space: Workspace) -> bool:
    """Whether the study's scores use models fitted to everybody's rows."""
    return space.study.nuisances.kind == "federated"


def _with_never(sent: FloatArray) -> FloatArray:  # shaped as sent
    """The numbers that were sent; an action that nobody else has scores for is set to `NEVER`."""
    others: FloatArray = np.array(sent)
    others[others[:, -1] <= -LARGEST_ASKED, -1] = NEVER
    return others
