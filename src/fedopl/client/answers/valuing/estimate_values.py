"""The values of several policies on the same rows, and the covariances of those values."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial, reduce

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.answers.asked_policies import Decides, deciders, policies_in
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disk.passes import Pass, totals_of
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.client.scoring.net_scores import net_rewards
from fedopl.client.scoring.study_scores import StudyScores
from fedopl.client.scoring.values import JointEstimate, JointSums
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.policy_fields import AsksAboutPolicies
from fedopl.messages.evaluation.policy_values import EstimateValues, Values
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.policy import Policy
from fedopl.study.study import Study

# Values may leave out at most this share of held-out rows: rows that have no score for a policy's
# decision.
MOST_UNSCORED = 0.05


def answer(space: Workspace, query: EstimateValues) -> Values:
    """The values of the policies in the query, of the logging policy and of the local policy."""
    return values_on_split(space, query, query.split)


def values_on_split(
    space: Workspace,
    query: AsksAboutPolicies[Values],
    split: RowSplit,
    further: Sequence[Policy] = (),
    again: Sequence[int] = (),
) -> Values:
    """The values of the policies in a query, and of further policies, on the rows of a split.

    The query's policies at the places `again` come once more after them.
    """
    found = estimate_candidates(space, query, split, further, again)
    return as_values(space, found, split)


def as_values(space: Workspace, found: JointEstimate, split: RowSplit) -> Values:
    """The estimates as an answer, where enough rows have scores for what policies decide."""
    check_not_selected(space, split, found.n_rows)
    return Values(
        n_rows=found.n_rows,
        of_rows=space.n_rows(split),
        degrees_of_freedom=found.degrees_of_freedom,
        means=found.means,
        covariances=found.covariances,
    )


def check_not_selected(space: Workspace, split: RowSplit, n_used: int) -> None:
    """Refuse values of few rows, and claimed ones of a part of them that the policies selected."""
    if n_used < max(space.limits.minimum_cell, 1):
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    n_rows = space.n_rows(split)
    few = max(MOST_UNSCORED * n_rows, 2 * space.limits.minimum_cell)
    is_claimed = split is RowSplit.EVALUATION or space.study.evaluation.is_cross_fitted
    if is_claimed and n_used < n_rows - few:
        raise RefusedError(RefusalCode.UNSCORED_DECISIONS)


def estimate_candidates(
    space: Workspace,
    query: AsksAboutPolicies[Values],
    split: RowSplit,
    further: Sequence[Policy] = (),
    again: Sequence[int] = (),
) -> JointEstimate:
    """Estimate the policies asked about, then the logging policy, then the client's own policy."""
    if split is RowSplit.EVALUATION:
        space.check_held_out()
    own: list[Decides] = []
    if split is RowSplit.EVALUATION:
        own = [space.local_policy.at(space.client).decide]
    valued = deciders(space, policies_in(query))
    valued += [policy.at(space.client).decide for policy in further]
    valued += [valued[place] for place in again]
    summed = partial(_summed, space.study, split, valued, own)
    found = together(totals_of(by_workers(space, space.chunks()), summed)).estimate()
    if found is None:
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    if split is RowSplit.EVALUATION and space.scored.adds_variance:
        rows = space.whole.rows(RowSplit.EVALUATION)
        contexts = space.data.contexts[rows]
        decided = np.column_stack([decide(contexts) for decide in (*valued, *own)])
        found = with_excess(found, space.scored, decided, space.whole.weights(rows))
    return with_events(found, space.event_spread)


def by_workers(space: Workspace, chunks: Pass[ScoredChunk]) -> Pass[ScoredChunk]:
    """The same chunks, for workers unless values take what is here alone.

    That is the client's own code, and sums of all its groups, which may be as many as rows.
    """
    is_here = space.rules or space.study_rows.given.groups is not None
    return chunks.here() if is_here else chunks


def together(totals: Iterable[JointSums]) -> JointSums:
    """The sums over all partitions."""
    return reduce(JointSums.plus, totals)


def _summed(
    study: Study,
    split: RowSplit,
    valued: Sequence[Decides],
    own: Sequence[Decides],
    chunks: Iterable[ScoredChunk],
) -> JointSums:
    sums = JointSums()
    for chunk in chunks:
        rows = chunk.rows(split)
        rewards = net_rewards(chunk.data, rows, study)
        values = _values(chunk, rows, rewards, valued, own)
        sums.add(values, chunk.weights(rows), chunk.data.groups_of(rows))
    return sums


def with_events(found: JointEstimate, size: float) -> JointEstimate:
    """The same estimate, with the variance that one event more or less gives each value.

    Where few rows have an event, or none, the spread of the rows understates the uncertainty.
    """
    if not size:
        return found
    added = (size / found.n_rows) ** 2 * np.eye(len(found.means))
    return replace(found, covariances=found.covariances + added)


def with_excess(
    found: JointEstimate, scores: StudyScores, decided: IntArray, weights: FloatArray | None
) -> JointEstimate:
    """The same with what values vary by, and rows at hand do not show."""
    added = scores.added_covariances(decided, weights)
    # Outcomes as they were logged, next to last, have no weights.
    places = [place for place in range(len(found.means)) if place != len(found.means) - 2]
    covariances = np.array(found.covariances)
    covariances[np.ix_(places, places)] += added
    return replace(found, covariances=covariances)


def _values(
    chunk: ScoredChunk,
    rows: slice,
    rewards: FloatArray,
    valued: Sequence[Decides],
    own: Sequence[Decides],
) -> FloatArray:  # (n_rows, n_policies + 2)
    """The scores of the policies' decisions, the rewards, and the scores of the local policy."""
    contexts, scores = chunk.data.contexts[rows], chunk.scores[rows]
    row = np.arange(len(scores))
    columns = [scores[row, decide(contexts)] for decide in valued]
    columns.append(rewards)
    columns += [scores[row, decide(contexts)] for decide in own] or [rewards]
    return np.column_stack(columns)
