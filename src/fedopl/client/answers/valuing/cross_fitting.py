"""Answers for cross-fitted values: sums by fold, and each fold valued by its own policies."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.answers.asked_policies import Decides, deciders, policies_in
from fedopl.client.answers.valuing.estimate_values import (
    ScoreSpread,
    ValuedCandidates,
    by_workers,
    released_values,
    together,
    with_excess,
)
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.small_cells import ScoreCounts, check_parts, check_takers
from fedopl.client.disk.passes import totals_of
from fedopl.client.local.fold_policies import local_policies_by_fold, means_by_fold
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.client.scoring.net_scores import net_rewards
from fedopl.client.scoring.values import JointSums
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.cross_fitted_values import ValueAcrossFolds
from fedopl.messages.evaluation.policy_values import Values
from fedopl.messages.learning.score_sums_by_fold import ScoreSumsByFold, SumByFold
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.study.study import Study

# Folds are not independent: each contributes to the policies that value the others. The less stable
# these policies are, the more it contributes. Measured on made-up rows, with and without effects,
# with and without groups: variances exceed those of independent rows by up to this factor times the
# share of `_instability`.
BY_INSTABILITY = 1.5


def sum_by_fold(space: Workspace, _query: SumByFold) -> ScoreSumsByFold:
    """Sums of scores by fold, where none rests on a few rows, or mostly on one."""
    space.check_rows_for_sums()
    sizes = space.rows_by_fold_action.sum(axis=1)
    # Groups stay together: if all rows are in one fold, nothing is learned without it.
    if sizes.min() < space.rows_needed or sizes.max() == sizes.sum():
        raise RefusedError(RefusalCode.TOO_FEW_ROWS)
    complete = bool(space.scored.is_complete) and not space.scored.hidden.any()
    if not complete:
        check_parts(_scores_by_fold(space), space.rows_needed)
    check_takers(space.rows_by_fold_action, space.limits.minimum_cell)
    if space.study_rows.dominated_by_fold.any or space.rests_on_few_in_a_fold:
        raise RefusedError(RefusalCode.DOMINATED)
    rows = space.study_rows
    return means_by_fold(
        space.scored.of(rows.chunks_by_fold()),
        rows,
        space.blocks,
        complete=complete,
        squares=lambda: rows.released_squares_by_fold,
    )


def _scores_by_fold(space: Workspace) -> list[ScoreCounts]:
    counts = [ScoreCounts(space.study.n_actions) for _ in range(space.study.nuisances.folds)]
    for chunk in space.chunks():
        for own, rows in zip(counts, chunk.fold_slices, strict=True):
            own.add(chunk.scores[rows])
    return counts


def value_across_folds(space: Workspace, query: ValueAcrossFolds) -> Values:
    """The values of the candidates, of the logging policy and of the client's local policy.

    In each row, a candidate decides as it was learned without that row's fold.
    """
    n_folds = space.study.nuisances.folds
    policies = policies_in(query)
    each = deciders(space, policies)
    valued = [each[start : start + n_folds] for start in range(0, len(each), n_folds)]
    alone = local_policies_by_fold(
        space.own_chunks_by_fold, space.study_rows, space.study, space.blocks
    )
    candidates: list[Sequence[Decides]] = [*valued, [one.at(space.client).decide for one in alone]]
    chunks = by_workers(space, space.scored.evaluated(space.unscored_chunks()))
    summed = partial(_summed, space.study, candidates, space.least_spread)
    sums, spread = together(totals_of(chunks, summed))
    found = sums.estimate()
    if found is None:
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    if space.scored.adds_variance:  # of rows in memory
        whole = space.whole
        decided = _decided(whole, candidates)
        found = with_excess(found, space.scored, decided, whole.weights(whole.training))
    wider = 1 + BY_INSTABILITY * max((_instability(space, own) for own in valued), default=0.0)
    found = replace(found, covariances=wider * found.covariances)
    asked = [
        ("by fold", *(part for one in policies[start : start + n_folds] for part in _parts(one)))
        for start in range(0, len(policies), n_folds)
    ]
    return released_values(
        space,
        ValuedCandidates(found, spread, asked, RowSplit.TRAINING),
        query.most_amount(space.study),
    )


def _summed(
    study: Study,
    candidates: Sequence[Sequence[Decides]],
    least_spread: float,
    chunks: Iterable[ScoredChunk],
) -> tuple[JointSums, ScoreSpread]:
    sums, spread = JointSums(), ScoreSpread(least_spread)
    for chunk in chunks:
        rows, decided = chunk.training, _decided(chunk, candidates)
        *asked_about, alone_worth = chunk.scores[rows][np.arange(len(decided)), decided.T]
        rewards = net_rewards(chunk.data, rows, study)
        values = np.column_stack([*asked_about, rewards, alone_worth])
        sums.add(values, chunk.weights(rows), chunk.data.groups_of(rows))
        spread.see(chunk.scores[rows], rewards)
    return sums, spread


def _instability(space: Workspace, versions: Sequence[Decides]) -> float:
    """How often two versions of a candidate decide differently on the client's rows."""
    pairs = list(combinations(range(len(versions)), 2))
    apart = np.zeros(len(pairs), np.int64)
    for chunk in space.unscored_chunks():
        contexts = chunk.data.contexts[chunk.training]
        decided = [decide(contexts) for decide in versions]
        apart += [np.count_nonzero(decided[first] != decided[second]) for first, second in pairs]
    return float(np.mean(apart / space.n_training))


def _parts(policy: dict[str, FloatArray]) -> tuple[str, FloatArray]:
    return next(iter(policy.items()))


def _decided(
    chunk: ScoredChunk, candidates: Sequence[Sequence[Decides]]
) -> IntArray:  # (n_rows, n_candidates)
    """The decisions of each candidate in training rows, by the version for the row's fold."""
    decided = np.empty((chunk.training.stop, len(candidates)), np.int64)
    for fold, rows in enumerate(chunk.fold_slices):
        contexts = chunk.data.contexts[rows]
        for place, versions in enumerate(candidates):
            decided[rows, place] = versions[fold](contexts)
    return decided
