"""Answers for cross-fitted values: sums by fold, and each fold valued by its own policies."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np

from fedopl.base.arrays import IntArray
from fedopl.client.answers.asked_policies import Decides, deciders, policies_in
from fedopl.client.answers.valuing.estimate_values import (
    as_values,
    by_workers,
    together,
    with_excess,
)
from fedopl.client.disclosure.limits import RefusedError
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
    """Sums of scores by fold; zeros for folds without rows, and by the rule on terms."""
    sizes = space.rows_by_fold_action.sum(axis=1)
    # Groups stay together: if all rows are in one fold, nothing is learned without it.
    if sizes.max() == sizes.sum():
        raise RefusedError(RefusalCode.TOO_FEW_ROWS)
    rows = space.study_rows
    found = means_by_fold(
        space.scored.of(rows.chunks_in_terms()),
        rows,
        space.blocks,
        complete=bool(space.scored.is_complete) and not space.scored.hidden.any(),
        squares=lambda: rows.squares_by_fold,
    )
    return found if space.adds_terms else found.without_sums()


def value_across_folds(space: Workspace, query: ValueAcrossFolds) -> Values:
    """The values of the candidates, of the logging policy and of the client's local policy.

    In each row, a candidate decides as it was learned without that row's fold.
    """
    n_folds = space.study.nuisances.folds
    policies = policies_in(query)
    each = deciders(space, policies)
    valued = [each[start : start + n_folds] for start in range(0, len(each), n_folds)]
    alone = local_policies_by_fold(space.own_chunks, space.study_rows, space.study, space.blocks)
    candidates: list[Sequence[Decides]] = [*valued, [one.at(space.client).decide for one in alone]]
    chunks = by_workers(space, space.scored.evaluated(space.unscored_chunks()))
    found = together(totals_of(chunks, partial(_summed, space.study, candidates))).estimate()
    if found is None:
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    if space.scored.adds_variance:  # of rows in memory
        whole = space.whole
        decided = _decided(whole, candidates)
        found = with_excess(found, space.scored, decided, whole.weights(whole.training))
    wider = 1 + BY_INSTABILITY * max((_instability(space, own) for own in valued), default=0.0)
    found = replace(found, covariances=wider * found.covariances)
    return as_values(space, found, RowSplit.TRAINING)


def _summed(
    study: Study,
    candidates: Sequence[Sequence[Decides]],
    chunks: Iterable[ScoredChunk],
) -> JointSums:
    sums = JointSums()
    for chunk in chunks:
        rows, decided = chunk.training, _decided(chunk, candidates)
        *asked_about, alone_worth = chunk.scores[rows][np.arange(len(decided)), decided.T]
        rewards = net_rewards(chunk.data, rows, study)
        values = np.column_stack([*asked_about, rewards, alone_worth])
        sums.add(values, chunk.weights(rows), chunk.data.groups_of(rows))
    return sums


def _instability(space: Workspace, versions: Sequence[Decides]) -> float:
    """How often two versions of a candidate decide differently on the client's rows."""
    pairs = list(combinations(range(len(versions)), 2))
    apart = np.zeros(len(pairs), np.int64)
    for chunk in space.unscored_chunks():
        contexts = chunk.data.contexts[chunk.training]
        decided = [decide(contexts) for decide in versions]
        apart += [np.count_nonzero(decided[first] != decided[second]) for first, second in pairs]
    return float(np.mean(apart / space.n_training))


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
