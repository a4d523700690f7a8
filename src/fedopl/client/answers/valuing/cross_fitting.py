"""Answers for cross-fitted values: sums by fold, and each fold valued by its own policies."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
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
from fedopl.messages.evaluation.cross_fitted_values import ValueAcrossFolds, ValuesAcrossFolds
from fedopl.messages.learning.score_sums_by_fold import ScoreSumsByFold, SumByFold
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.study.study import Study

# Folds are not independent: each contributes to the policies that value the others. The less stable
# these policies are, the more it contributes. Measured on made-up rows, with and without effects,
# with and without groups: variances exceed those of independent rows by up to this factor times how
# often two versions decide differently. For differences, versions of either policy count.
OF_VALUES, OF_TREES, OF_DIFFERENCES = 1.5, 2.0, 2.0


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


def value_across_folds(space: Workspace, query: ValueAcrossFolds) -> ValuesAcrossFolds:
    """The values of the candidates, of the logging policy and of the client's local policy.

    In each row, a candidate decides as it was learned without that row's fold.
    """
    n_folds = space.study.nuisances.folds
    policies = policies_in(query)
    each = deciders(space, policies)
    valued = [each[start : start + n_folds] for start in range(0, len(each), n_folds)]
    alone = local_policies_by_fold(
        space.own_chunks, space.study_rows, space.study, space.blocks, space.obeyed
    )
    candidates: list[Sequence[Decides]] = [*valued, [one.at(space.client).decide for one in alone]]
    chunks = by_workers(space, space.scored.evaluated(space.unscored_chunks()))
    found = together(totals_of(chunks, partial(_summed, space.study, candidates))).estimate()
    if found is None:
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    if space.scored.adds_variance:  # of rows in memory
        whole = space.whole
        decided = _decided(whole, candidates)
        found = with_excess(found, space.scored, decided, whole.weights(whole.training))
    told = as_values(space, found, RowSplit.TRAINING)
    *asked_about, own_alone = candidates  # what was done comes between them, and has no versions
    versions = {**dict(enumerate(asked_about)), len(candidates): own_alone}
    return ValuesAcrossFolds(**vars(told), wider=_wider(space, versions))


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


def _wider(
    space: Workspace, versions: Mapping[int, Sequence[Decides]]
) -> FloatArray:  # (n_candidates, n_candidates)
    """By what factor variances of values, and of their differences, exceed those of fixed policies.

    Candidates at other places, such as what was done, are the same in every fold.
    """
    n_candidates = max(versions) + 1
    apart = np.zeros((n_candidates, n_candidates))
    for chunk in space.unscored_chunks():
        contexts = chunk.data.contexts[chunk.training]
        found = {p: _differ([decide(contexts) for decide in own]) for p, own in versions.items()}
        differ = {place: own for place, own in found.items() if own.any()}
        for place, own in differ.items():
            apart[place] += own.sum()
            apart[:, place] += own.sum()
            apart[place, place] -= own.sum()
        for first, second in combinations(differ, 2):
            both = np.count_nonzero(differ[first] & differ[second])
            apart[first, second] -= both
            apart[second, first] -= both
    folds = space.study.nuisances.folds
    apart /= folds * (folds - 1) / 2 * space.n_training
    is_tree = space.study.policy.kind == "tree"
    factors = np.full_like(apart, OF_DIFFERENCES)
    np.fill_diagonal(factors, OF_TREES if is_tree else OF_VALUES)
    return 1 + factors * apart


def _differ(decided: Sequence[IntArray]) -> BoolArray:  # (n_pairs, n_rows)
    """Where each two versions decide differently."""
    return np.stack([one != other for one, other in combinations(decided, 2)])


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
