"""What one client learns without each of its folds: sums by fold, and policies from them."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.local.local_tree import best_local_tree
from fedopl.client.local.obeyed_scores import ObeyedScores
from fedopl.client.local.score_means import ScoreTotals
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.client.rows.study_rows import StudyRows
from fedopl.messages.learning.score_sums_by_fold import ScoreSumsByFold
from fedopl.policies.policy import Policy
from fedopl.policies.tree import TreePolicy
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.results.sums.term_choice import choose_terms
from fedopl.study.study import Study

# A federation of one.
ALONE = {"own": 1.0}


def means_by_fold(
    chunks: Iterable[ScoredChunk],
    rows: StudyRows,
    columns: list[IntArray] | None,
    *,
    complete: bool,
    squares: Callable[[], FloatArray | None],
) -> ScoreSumsByFold:
    """Means over each fold of these chunks, whose contexts are terms.

    They are `complete` if all training rows have all scores. Then one Gram matrix serves all
    actions, and it is not summed again where `squares` by fold are known.
    """
    known = squares() if complete and columns is None else None
    folds = range(rows.folds_as_given.n_folds)
    totals = [
        ScoreTotals(rows.given.n_actions, rows.n_terms, columns, complete=complete) for _ in folds
    ]
    weights = np.zeros(len(folds))
    for chunk in chunks:
        for fold, own in enumerate(chunk.fold_slices):
            add = totals[fold].add if known is None else totals[fold].add_without_squares
            add(chunk.data, chunk.scores, own)
            weights[fold] += chunk.data.weights_of(own).sum()
    if known is not None:
        for own, total in zip(known, totals, strict=True):
            total.add_squares(own)
    means = [own.means() for own in totals]
    return ScoreSumsByFold(
        weights=weights / weights.sum(),
        grams=np.stack([one.grams for one in means]),
        products=np.stack([one.products for one in means]),
        squares=np.stack([one.squares for one in means]),
        shares=np.stack([one.shares for one in means]),
    )


def sums_by_fold(
    scored: Callable[[], Iterable[ScoredChunk]], rows: StudyRows, columns: list[IntArray] | None
) -> ScoreSumsByFold:
    """Means over each fold of these chunks, from their terms."""
    complete = all(np.isfinite(chunk.scores[chunk.training]).all() for chunk in scored())
    parts = (
        part.with_scores(chunk.scores[which])
        for chunk in scored()
        for which, part in rows.in_terms(chunk)
    )
    return means_by_fold(
        parts, rows, columns, complete=complete, squares=lambda: rows.squares_by_fold
    )


def local_policies_by_fold(
    own: Callable[[], Iterable[ScoredChunk]],
    rows: StudyRows,
    study: Study,
    columns: list[IntArray] | None,
    obeyed: ObeyedScores,
) -> Sequence[Policy]:
    """What the client would learn alone without each fold, from scores that use only its rows."""
    if study.policy.local_kind == TreePolicy.kind:
        return _local_trees(own, rows, study, obeyed)
    sums = sums_by_fold(own, rows, columns)
    n_folds = len(sums.weights)
    policies = []
    for fold in range(n_folds):
        others = [other for other in range(n_folds) if other != fold]
        statistics = ScoreStatistics(
            study=study,
            sums={"own": sums.of_folds(others)},
            rows=ALONE,  # the number of rows does not matter with a single client
            screening=fold,
            choice=choose_terms(study, {"own": sums}, ALONE, others, screening=fold),
        )
        policies.append(statistics.solve(ALONE))
    return policies


def _local_trees(
    own: Callable[[], Iterable[ScoredChunk]], rows: StudyRows, study: Study, obeyed: ObeyedScores
) -> list[TreePolicy]:
    """The same where the policy is a tree."""
    found = rows.kept(own)  # used for every fold and level
    trees = [
        best_local_tree(
            partial(obeyed.to_sum, found, fold), study.tree, study.columns, study.actions
        )
        for fold in range(rows.folds_as_given.n_folds)
    ]
    return [TreePolicy.of(root, study) for root in trees]
