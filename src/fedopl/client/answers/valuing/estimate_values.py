"""The values of several policies on the same rows, and the covariances of those values."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import FloatArray
from fedopl.client.answers.asked_policies import deciders, policies_in
from fedopl.client.answers.valuing.versions import Versions, decided_in, with_wider_variances
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disk.passes import Pass, totals_of
from fedopl.client.local.personal_policy import chunks_without
from fedopl.client.outcome_workspace import OutcomeWorkspace
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.client.scoring.net_scores import net_rewards
from fedopl.client.scoring.values import JointEstimate, JointSums
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.policy_values import (
    IN_LEAVES,
    N_OWN_CANDIDATES,
    NO_FOLD,
    Value,
    Values,
    ValuesByPart,
)
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.study.guardrail import guarded_columns
from fedopl.study.study import Study

# Values may leave out at most this share of held-out rows: rows that have no score for a policy's
# decision.
MOST_UNSCORED = 0.05


def values_by_query(space: Workspace, query: Value, further: Sequence[Versions] = ()) -> Values:
    """The values of the policies in a query, and of further ones, by the outcome that it names.

    What was done comes behind them, and last the client's own policy.
    """
    if query.outcome:
        space = OutcomeWorkspace(space, guarded_columns(space.study)[query.outcome - 1])
    asked = query.of_candidates(deciders(space, policies_in(query)))
    without = None if query.without == NO_FOLD else query.without
    return values_on(space, query.split, [*asked, *further], without)


def values_on(
    space: Workspace, split: RowSplit, asked: Sequence[Versions], without: int | None = None
) -> Values:
    """The values of these candidates, if enough rows have scores for what they decide.

    The rows of a fold may be left out, so that something may be chosen for it.
    """
    found = estimate(space, split, asked, without)
    counts = told_of(space, split, found, without)
    return Values(**counts, means=found.means, covariances=found.covariances)


def by_part(
    estimates: Sequence[Sequence[JointEstimate | Values | None]],  # (n_leaves, n_parts)
    *,
    of_rows: ArrayLike,  # (n_leaves,)
    shares: ArrayLike = 1.0,  # (n_leaves,)
    wider: FloatArray | float = 1.0,  # (n_leaves, n_parts), by which variances are multiplied
    needed: int = 1,
) -> ValuesByPart:
    """The estimates of all parts as one answer; zeros of those that too few rows are behind."""
    told = {
        (leaf, part): own
        for leaf, parts in enumerate(estimates)
        for part, own in enumerate(parts)
        if own and own.n_rows >= needed
    }
    n_columns = len(next(iter(told.values())).means) if told else len(IN_LEAVES)
    shape = len(estimates), len(estimates[0])
    n_rows, freedom = np.zeros((2, *shape))
    means, covariances = np.zeros((*shape, n_columns)), np.zeros((*shape, n_columns, n_columns))
    for place, own in told.items():
        n_rows[place], freedom[place] = own.n_rows, own.degrees_of_freedom
        means[place], covariances[place] = own.means, own.covariances
    return ValuesByPart(
        of_rows=np.broadcast_to(np.asarray(of_rows, np.float64), shape[:1]),
        shares=np.broadcast_to(np.asarray(shares, np.float64), shape[:1]),
        n_rows=n_rows,
        degrees_of_freedom=freedom,
        means=means,
        covariances=covariances * np.broadcast_to(wider, shape)[..., None, None],
    )


def told_of(
    space: Workspace, split: RowSplit, found: JointEstimate | None, without: int | None = None
) -> dict[str, Any]:
    """What rows values are of, if enough have scores for what is decided."""
    if found is None:
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    _check_not_selected(space, split, found.n_rows)
    return {
        "n_rows": found.n_rows,
        "of_rows": space.n_rows(split, without),
        "degrees_of_freedom": found.degrees_of_freedom,
    }


def valued_chunks(space: Workspace, split: RowSplit) -> Pass[ScoredChunk]:
    """The rows with scores as they value; held-out rows only if there are enough."""
    if split in (RowSplit.EACH_FOLD, RowSplit.ALL):
        return space.scored.evaluated(space.unscored_chunks())
    if split is RowSplit.EVALUATION:
        space.check_held_out()
    return space.chunks()


def _check_not_selected(space: Workspace, split: RowSplit, n_used: int) -> None:
    """Refuse values of few rows, and claimed ones of a part of them that the policies selected."""
    if n_used < max(space.limits.minimum_cell, 1):
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    n_rows = space.n_rows(split)
    few = max(MOST_UNSCORED * n_rows, 2 * space.limits.minimum_cell)
    is_claimed = split in (RowSplit.EVALUATION, RowSplit.EACH_FOLD, RowSplit.ALL)
    if is_claimed and n_used < n_rows - few:
        raise RefusedError(RefusalCode.UNSCORED_DECISIONS)


def estimate(
    space: Workspace, split: RowSplit, asked: Sequence[Versions], without: int | None = None
) -> JointEstimate:
    """Estimate these candidates, then what was done, then the client's own policy.

    That was learned from rows, so where all rows count, what was done stands in its place.
    """
    scored, own = valued_chunks(space, split), list[Versions]()
    is_by_fold = split is RowSplit.EACH_FOLD
    if is_by_fold:
        own = [[policy.at(space.client).decide for policy in space.local_policies_by_fold]]
    elif split is RowSplit.EVALUATION:
        own = [[space.local_policy.at(space.client).decide]]
    is_of_all = split is RowSplit.ALL
    summed = partial(_summed, space.study, split, asked, own, without)
    found = together(totals_of(by_workers(space, scored), summed)).estimate()
    if found is None:
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    if (own or (is_of_all and asked)) and space.scored.adds_variance:  # of rows in memory
        whole, rows = space.whole, space.whole.rows(split)
        decided = [decided_in(whole, rows, one) for one in (*asked, *own)]
        added = space.scored.added_covariances(rows, np.column_stack(decided), whole.weights(rows))
        found = with_excess(found, added)
    found = with_events(found, space.event_spread)
    return with_wider_variances(space, found, [*asked, (), *own]) if is_by_fold else found


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
    asked: Sequence[Versions],
    own: Sequence[Versions],
    without: int | None,
    chunks: Iterable[ScoredChunk],
) -> JointSums:
    """The scores of what candidates decide, the rewards, and those of the client's own policy."""
    sums = JointSums()
    for chunk in chunks_without(lambda: chunks, without):
        rows = chunk.rows(split, without)
        scores, rewards = chunk.scores[rows], net_rewards(chunk.data, rows, study)
        row = np.arange(len(scores))
        columns = [scores[row, decided_in(chunk, rows, one)] for one in asked]
        columns.append(rewards)
        columns += [scores[row, decided_in(chunk, rows, one)] for one in own] or [rewards]
        sums.add(np.column_stack(columns), chunk.weights(rows), chunk.data.groups_of(rows))
    return sums


def with_events(found: JointEstimate, size: float) -> JointEstimate:
    """The same estimate, with the variance that one event more or less gives each value.

    Where few rows have an event, or none, the spread of the rows understates the uncertainty.
    """
    if not size:
        return found
    added = (size / found.n_rows) ** 2 * np.eye(len(found.means))
    return replace(found, covariances=found.covariances + added)


def with_excess(found: JointEstimate, added: FloatArray) -> JointEstimate:
    """The same with what values vary by, and rows at hand do not show."""
    # Outcomes as they were logged have no weights: next to last, or last, too, without an own one.
    logged = len(found.means) - N_OWN_CANDIDATES
    places = [place for place in range(len(found.means)) if place != logged][: len(added)]
    covariances = np.array(found.covariances)
    covariances[np.ix_(places, places)] += added
    return replace(found, covariances=covariances)
