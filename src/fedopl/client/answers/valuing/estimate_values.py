"""The values of several policies on the same rows, and the covariances of those values."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.answers.asked_policies import Decides, deciders, policies_in
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.noise import values_with_noise
from fedopl.client.disk.passes import Pass, totals_of
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.client.scoring.net_scores import net_rewards
from fedopl.client.scoring.study_scores import StudyScores
from fedopl.client.scoring.values import JointEstimate, JointSums
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.outcome_values import ValueOutcome
from fedopl.messages.evaluation.personal_values import AsksPersonal
from fedopl.messages.evaluation.policy_fields import AsksAboutPolicies
from fedopl.messages.evaluation.policy_values import N_OWN_CANDIDATES, EstimateValues, Values
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.policy import Policy
from fedopl.study.study import Study

# Values may leave out at most this share of held-out rows: rows that have no score for a policy's
# decision.
MOST_UNSCORED = 0.05
# A policy with doubts can treat one person alone. Without doubts, that takes two half-spaces. So an
# attacker who spends all policies on one person learns this many times as much.
BY_DOUBTS = 2


@dataclass(frozen=True, eq=False)
class ValuedCandidates:
    """The estimates for candidates, and the questions that they answer."""

    found: JointEstimate
    spread: "ScoreSpread"
    asked: Sequence[tuple[object, ...]]  # by candidate, without the client's own two
    split: RowSplit


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
    n_values = query.n_policies + len(further) + len(again) + N_OWN_CANDIDATES
    n_rows = space.n_rows(split)
    if n_rows < space.limits.minimum_cell:
        raise RefusedError(RefusalCode.TOO_FEW_ROWS)
    space.limits.check_parameters(n_values, n_rows)
    found, spread = estimate_candidates(space, query, split, further, again)
    policies: list[tuple[object, ...]] = [next(iter(one.items())) for one in policies_in(query)]
    # The noise depends on the policy that is valued: the same policy, asked about in another way,
    # has the same noise.
    policies += [(one.message_field, one.numbers()) for one in further]
    policies += [policies[place] for place in again]
    asked = [(split.name, *policy) for policy in policies]
    valued = ValuedCandidates(found, spread, asked, split)
    return released_values(space, valued, most_valued(space.study))


def most_valued(study: Study) -> float:
    """How many policies the study may ask about in all, by any outcome.

    A server with similar outcomes could average the noise over all of them.
    """
    further = ValueOutcome.most_amount(study) if study.guardrails else 0
    personal = AsksPersonal.most_amount(study) if study.personalises else 0
    return EstimateValues.most_amount(study) + further + personal


def released_values(space: Workspace, valued: ValuedCandidates, most: float) -> Values:
    """Values with noise, where enough rows have scores for what policies decide.

    `most` is the number of policies that may be asked about in all. The more, the more noise.
    """
    found, spread, n_rows = valued.found, valued.spread, space.n_rows(valued.split)
    together = [part for one in valued.asked for part in one]
    n_used = found.n_rows
    if not spread.all_scored:
        # The server can choose policies, and so this count: how many rows have scores for their
        # decisions.
        noisy = space.noisy(np.array([float(n_used)]), *together)
        n_used = min(max(int(noisy[0]), 1), n_rows)
        check_not_selected(space, valued.split, n_used)
    least = max(space.limits.minimum_cell, len(found.means) / space.limits.parameter_share)
    if min(n_used, found.n_rows) < least:
        raise RefusedError(RefusalCode.SMALL_CELLS)
    own = [(valued.split.name, whose) for whose in ("logging", "local")]
    draws = [space.noise_for("value", *parts) for parts in (*valued.asked, *own, together)]
    influence = space.limits.value_noise * spread.usual / found.n_rows
    influence *= BY_DOUBTS if space.study.is_cautious else 1
    means, covariances = values_with_noise(found.means, found.covariances, influence, draws, most)
    return Values(
        n_rows=n_used,
        of_rows=n_rows,
        degrees_of_freedom=max(found.degrees_of_freedom + n_used - found.n_rows, 0),
        means=means,
        covariances=covariances,
    )


def check_not_selected(space: Workspace, split: RowSplit, n_used: int) -> None:
    """Refuse claimed values that rest on a part of the rows which the policies selected.

    The check uses the count with noise, which would otherwise be sent. So the refusal discloses no
    more than the count.
    """
    n_rows = space.n_rows(split)
    few = max(MOST_UNSCORED * n_rows, 2 * space.limits.minimum_cell)
    is_claimed = split is RowSplit.EVALUATION or space.study.evaluation.is_cross_fitted
    if is_claimed and n_used < n_rows - few:
        raise RefusedError(RefusalCode.UNSCORED_DECISIONS)


class ScoreSpread:
    """How far apart a usual row's scores and reward lie, and so how much it can change a value.

    The spread is over all actions: the scores of one policy may be alike in all rows but one.
    """

    def __init__(self, least: float = 0.0) -> None:
        self.all_scored = True  # then no row is left out, whatever policies decide
        self._least = least  # the change by a row that matters, where few rows do
        self._squares, self._n_rows = 0.0, 0

    def see(self, scores: FloatArray, rewards: FloatArray) -> None:
        """Include these rows."""
        known = np.isfinite(scores)
        self.all_scored = self.all_scored and bool(known.all())
        high = np.maximum(np.where(known, scores, -np.inf).max(axis=1), rewards)
        low = np.minimum(np.where(known, scores, np.inf).min(axis=1), rewards)
        self._squares += float(((high - low) ** 2).sum())
        self._n_rows += len(rewards)

    def plus(self, other: "ScoreSpread") -> "ScoreSpread":
        """Both together; this one is written over."""
        self.all_scored = self.all_scored and other.all_scored
        self._squares += other._squares
        self._n_rows += other._n_rows
        return self

    @property
    def usual(self) -> float:
        """The root mean square, or more where few rows differ from all others."""
        return max(float(np.sqrt(self._squares / max(self._n_rows, 1))), self._least)


def estimate_candidates(
    space: Workspace,
    query: AsksAboutPolicies[Values],
    split: RowSplit,
    further: Sequence[Policy] = (),
    again: Sequence[int] = (),
) -> tuple[JointEstimate, ScoreSpread]:
    """Estimate the policies asked about, then the logging policy, then the client's own policy."""
    if not space.n_rows(split):
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    own: list[Decides] = []
    if split is RowSplit.EVALUATION:
        own = [space.local_policy.at(space.client).decide]
    valued = deciders(space, policies_in(query))
    valued += [policy.at(space.client).decide for policy in further]
    valued += [valued[place] for place in again]
    summed = partial(_summed, space.study, split, valued, own, space.least_spread)
    sums, spread = together(totals_of(by_workers(space, space.chunks()), summed))
    found = sums.estimate()
    if found is None:
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    if split is RowSplit.EVALUATION and space.scored.adds_variance:
        rows = space.whole.rows(RowSplit.EVALUATION)
        contexts = space.data.contexts[rows]
        decided = np.column_stack([decide(contexts) for decide in (*valued, *own)])
        found = with_excess(found, space.scored, decided, space.whole.weights(rows))
    return with_events(found, space.event_spread), spread


def by_workers(space: Workspace, chunks: Pass[ScoredChunk]) -> Pass[ScoredChunk]:
    """The same chunks, for workers unless values take what is here alone.

    That is the client's own code, and sums of all its groups, which may be as many as rows.
    """
    is_here = space.rules or space.study_rows.given.groups is not None
    return chunks.here() if is_here else chunks


def together(
    totals: Iterable[tuple[JointSums, ScoreSpread]],
) -> tuple[JointSums, ScoreSpread]:
    """Sums and spreads over all partitions."""
    (sums, spread), *others = totals
    for more, further in others:
        sums, spread = sums.plus(more), spread.plus(further)
    return sums, spread


def _summed(
    study: Study,
    split: RowSplit,
    valued: Sequence[Decides],
    own: Sequence[Decides],
    least_spread: float,
    chunks: Iterable[ScoredChunk],
) -> tuple[JointSums, ScoreSpread]:
    sums, spread = JointSums(), ScoreSpread(least_spread)
    for chunk in chunks:
        rows = chunk.rows(split)
        rewards = net_rewards(chunk.data, rows, study)
        spread.see(chunk.scores[rows], rewards)
        values = _values(chunk, rows, rewards, valued, own)
        sums.add(values, chunk.weights(rows), chunk.data.groups_of(rows))
    return sums, spread


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
