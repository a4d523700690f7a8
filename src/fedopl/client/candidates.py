"""The values of several policies on the same rows, and how those values vary together."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedopl.arrays import BoolArray, FloatArray, IntArray, compact_codes, frozen
from fedopl.client.limits import RefusedError
from fedopl.client.twins import twins_among
from fedopl.client.values import JointEstimate, joint_estimate
from fedopl.client.workspace import Workspace
from fedopl.policies.linear import LinearPolicy, PairwisePolicy
from fedopl.policies.tree import TreePolicy, from_array
from fedopl.wire.vocabulary import Describe, EstimateValues, RefusalCode, Split


def estimate_candidates(
    space: Workspace, query: EstimateValues, minimum_cell: int
) -> JointEstimate:
    """Estimate what was asked about, then the logging policy, then the client's own policy.

    Policies that differ in a few rows only, from each other, from any valued before or from the
    client's own, would tell those rows' scores: the later one is valued as the earlier.
    """
    rows, data = space.rows(query.split), space.data
    if not rows.any():
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    held_out = query.split is Split.EVALUATION
    # Splits of the training rows overlap: what differs in few rows is seen on all of them.
    seen = rows if held_out else space.training
    contexts = data.contexts[seen]
    asked = [compact_codes(codes) for codes in decisions(space, query, contexts)]
    own = [compact_codes(space.local_policy.decide(contexts))] if held_out else []
    told, places = asked, np.arange(len(asked))
    if minimum_cell:
        told, places = _told_apart(space, asked, own, rows[seen], seen, minimum_cell)
    scores = space.scores[rows]
    chosen = [scores[np.arange(len(scores)), codes[rows[seen]]] for codes in (*told, *own)]
    chosen.insert(len(told), data.rewards[rows])
    values = np.column_stack(chosen if own else [*chosen, chosen[-1]])
    if minimum_cell:
        known = np.asarray(np.isfinite(values).all(axis=1))
        _check_left_out(space, rows, known, minimum_cell)
    found = joint_estimate(
        values,
        None if data.weights is None else data.weights[rows],
        None if data.groups is None else data.groups[rows],
    )
    if found is None:
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    return _in_order(found, [*places, len(told), len(told) + 1])


def _told_apart(
    space: Workspace,
    asked: list[IntArray],
    own: list[IntArray],
    valued: BoolArray,
    seen: BoolArray,
    minimum_cell: int,
) -> tuple[list[IntArray], IntArray]:
    """The decisions that may be valued, and the place among them of each policy asked about."""
    earlier = [*own, *space.decisions(seen)]
    twins = twins_among(asked, earlier, valued, minimum_cell)
    every = [*earlier, *asked]
    space.remember(seen, [every[place] for place in np.unique(twins[twins >= len(earlier)])])
    used, places = np.unique(twins, return_inverse=True)
    return [every[place] for place in used], places


def _check_left_out(space: Workspace, rows: BoolArray, known: BoolArray, least: int) -> None:
    """Refuse to leave out a few rows, of all or of those that an earlier answer rests on.

    Rows without a score are left out: two answers about one policy would tell of the few between.
    """
    for earlier in (np.ones_like(known), *space.decisions(rows, "known")):
        if 0 < np.count_nonzero(known != earlier) < least:
            raise RefusedError(RefusalCode.SMALL_CELLS)
    space.remember(rows, [known.astype(np.uint8)], "known")


def _in_order(found: JointEstimate, places: Sequence[int]) -> JointEstimate:
    """The estimates at these places, some of them more than once."""
    return replace(
        found, means=found.means[places], covariances=found.covariances[np.ix_(places, places)]
    )


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
