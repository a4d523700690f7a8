"""The values of several policies on the same rows, and how those values vary together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.answers.asked_policies import Decides, deciders, policies_in
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.noise import values_with_noise
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

# The share of held-out rows that values may do without, as policies decide on what has no score.
MOST_UNSCORED = 0.05
# A policy with doubts can treat one person alone, which takes two half-spaces: whoever spends all
# policies on that person finds out by so much more than with those.
BY_DOUBTS = 2


@dataclass(frozen=True, eq=False)
class ValuedCandidates:
    """What was found of candidates, and the questions that it answers."""

    found: JointEstimate
    spread: "ScoreSpread"
    asked: Sequence[tuple[object, ...]]  # by candidate, but for the client's own two
    split: RowSplit


def answer(space: Workspace, query: EstimateValues) -> Values:
    """The values of the policies asked about, of the logging policy and of the client's own."""
    return values_on_split(space, query, query.split)


def values_on_split(
    space: Workspace,
    query: AsksAboutPolicies[Values],
    split: RowSplit,
    further: Sequence[Policy] = (),
    again: Sequence[int] = (),
) -> Values:
    """The values of the policies that a query carries, and of further ones, on rows of a split.

    Those of the query at the places `again` come once more behind them.
    """
    n_values = query.n_policies + len(further) + len(again) + N_OWN_CANDIDATES
    n_rows = space.n_rows(split)
    if n_rows < space.limits.minimum_cell:
        raise RefusedError(RefusalCode.TOO_FEW_ROWS)
    space.limits.check_parameters(n_values, n_rows)
    found, spread = estimate_candidates(space, query, split, further, again)
    policies: list[tuple[object, ...]] = [next(iter(one.items())) for one in policies_in(query)]
    # Noise follows from what is valued: the same policy, asked about otherwise, has the same.
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

    `most` policies may be asked about in all: the more, the more noise.
    """
    found, spread, n_rows = valued.found, valued.spread, space.n_rows(valued.split)
    together = [part for one in valued.asked for part in one]
    n_used = found.n_rows
    if not spread.all_scored:
        # How many rows have scores for what policies decide is a count that the server can choose.
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
    """Refuse values to be claimed that rest on a part of the rows which the policies selected.

    By the count with noise, which would leave otherwise: so the refusal tells no more than it.
    """
    n_rows = space.n_rows(split)
    few = max(MOST_UNSCORED * n_rows, 2 * space.limits.minimum_cell)
    is_claimed = split is RowSplit.EVALUATION or space.study.evaluation.is_cross_fitted
    if is_claimed and n_used < n_rows - few:
        raise RefusedError(RefusalCode.UNSCORED_DECISIONS)


class ScoreSpread:
    """How far a usual row's scores and reward lie apart, so what it can change a value by.

    Over all actions: the scores of one policy may be alike in all rows but one.
    """

    def __init__(self, least: float = 0.0) -> None:
        self.all_scored = True  # so that no row is left out, whatever policies decide
        self._least = least  # what a row that matters changes, where few rows do
        self._squares, self._n_rows = 0.0, 0

    def see(self, scores: FloatArray, rewards: FloatArray) -> None:
        """Take note of these rows."""
        known = np.isfinite(scores)
        self.all_scored = self.all_scored and bool(known.all())
        high = np.maximum(np.where(known, scores, -np.inf).max(axis=1), rewards)
        low = np.minimum(np.where(known, scores, np.inf).min(axis=1), rewards)
        self._squares += float(((high - low) ** 2).sum())
        self._n_rows += len(rewards)

    @property
    def usual(self) -> float:
        """The root of the mean square, or more where few rows differ from all others."""
        return max(float(np.sqrt(self._squares / max(self._n_rows, 1))), self._least)


def estimate_candidates(
    space: Workspace,
    query: AsksAboutPolicies[Values],
    split: RowSplit,
    further: Sequence[Policy] = (),
    again: Sequence[int] = (),
) -> tuple[JointEstimate, ScoreSpread]:
    """Estimate what was asked about, then the logging policy, then the client's own policy."""
    if not space.n_rows(split):
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    own: list[Decides] = []
    if split is RowSplit.EVALUATION:
        own = [space.local_policy.at(space.client).decide]
    valued = deciders(space, policies_in(query))
    valued += [policy.at(space.client).decide for policy in further]
    valued += [valued[place] for place in again]
    sums, spread = JointSums(), ScoreSpread(space.least_spread)
    for chunk in space.chunks():
        rows = chunk.rows(split)
        rewards = net_rewards(chunk.data, rows, space.study)
        spread.see(chunk.scores[rows], rewards)
        values = _values(chunk, rows, rewards, valued, own)
        sums.add(values, chunk.weights(rows), chunk.data.groups_of(rows))
    found = sums.estimate()
    if found is None:
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    if split is RowSplit.EVALUATION and space.scored.adds_variance:
        rows = space.whole.rows(RowSplit.EVALUATION)
        contexts = space.data.contexts[rows]
        decided = np.column_stack([decide(contexts) for decide in (*valued, *own)])
        found = with_excess(found, space.scored, decided, space.whole.weights(rows))
    return with_events(found, space.event_spread), spread


def with_events(found: JointEstimate, size: float) -> JointEstimate:
    """The same, as unsure as an event more or less makes each value.

    Where few rows have an event, or none, their spread says less than there is to fear.
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
    """The scores of what policies decide, the rewards, and the scores of the own policy."""
    contexts, scores = chunk.data.contexts[rows], chunk.scores[rows]
    row = np.arange(len(scores))
    columns = [scores[row, decide(contexts)] for decide in valued]
    columns.append(rewards)
    columns += [scores[row, decide(contexts)] for decide in own] or [rewards]
    return np.column_stack(columns)
