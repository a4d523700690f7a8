"""The values of several policies on the same rows, and how those values vary together."""

import numpy as np

from fedopl.arrays import FloatArray, IntArray, frozen
from fedopl.client.guards import check_decisions
from fedopl.client.limits import RefusedError
from fedopl.client.values import JointEstimate, joint_estimate
from fedopl.client.workspace import Workspace
from fedopl.policies.linear import LinearPolicy, PairwisePolicy
from fedopl.policies.tree import TreePolicy, from_array
from fedopl.wire.vocabulary import Describe, EstimateValues, RefusalCode, Split


def estimate_candidates(
    space: Workspace, query: EstimateValues, minimum_cell: int
) -> JointEstimate:
    """Estimate what was asked about, then the logging policy, then the client's own policy.

    Policies that differ in a few rows only, from each other or from any valued before, would tell
    those rows' scores: they are refused.
    """
    rows = space.rows(query.split)
    if not rows.any():
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    # Splits of the training rows overlap: what differs in few rows is seen on all of them.
    seen = rows if query.split is Split.EVALUATION else space.training
    decided = decisions(space, query, space.data.contexts[seen])
    if minimum_cell:
        check_decisions(decided, space.decisions(seen), minimum_cell)
        space.remember(seen, decided)
    contexts, scores = space.data.contexts[rows], space.scores[rows]
    chosen = [scores[np.arange(len(scores)), codes[rows[seen]]] for codes in decided]
    chosen.append(space.data.rewards[rows])
    local = chosen[-1]
    if query.split is Split.EVALUATION:
        local = scores[np.arange(len(scores)), space.local_policy.decide(contexts)]
    chosen.append(local)
    data = space.data
    found = joint_estimate(
        np.column_stack(chosen),
        None if data.weights is None else data.weights[rows],
        None if data.groups is None else data.groups[rows],
    )
    if found is None:
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    return found


def decisions(
    space: Workspace, query: EstimateValues | Describe, contexts: FloatArray
) -> list[IntArray]:
    """What each policy of the query decides: linear, then pairwise, then trees, then rules."""
    actions, features = space.study.actions, space.study.features
    decided = [LinearPolicy(p, actions, features).decide(contexts) for p in query.linear]
    decided += [PairwisePolicy(p, actions, features).decide(contexts) for p in query.pairwise]
    decided += [_tree(space, numbers).decide(contexts) for numbers in query.trees]
    decided += [_rule_codes(space, position, contexts) for position in query.rules]
    return decided


def n_policies(query: EstimateValues | Describe) -> int:
    """How many policies a query asks about."""
    return len(query.linear) + len(query.pairwise) + len(query.trees) + len(query.rules)


def _tree(space: Workspace, numbers: FloatArray) -> TreePolicy:
    study = space.study
    try:
        root = from_array(numbers, study.columns, range(study.n_actions))
    except ValueError:
        raise RefusedError(RefusalCode.MALFORMED) from None
    return TreePolicy(root, study.actions, study.features, study.encoding)


def _rule_codes(space: Workspace, position: float, contexts: FloatArray) -> IntArray:
    """What a rule of the client's own code decides; anything but action codes is a failure."""
    if position not in range(len(space.study.candidates)):
        raise RefusedError(RefusalCode.MALFORMED)
    name = space.study.candidates[int(position)]
    answered = np.asarray(space.rules[name](frozen(contexts)))
    if answered.shape != (len(contexts),) or answered.dtype.kind not in "iub":
        raise RefusedError(RefusalCode.FAILED)
    codes = answered.astype(np.int64)
    if codes.min() < 0 or codes.max() >= space.study.n_actions:
        raise RefusedError(RefusalCode.FAILED)
    return codes
