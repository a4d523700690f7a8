"""What one client learns without each of its folds: sums fold by fold, and policies from them."""

import numpy as np

from fedopl.base.arrays import IntArray
from fedopl.client.local.score_means import score_means
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.client.table.logged_data import LoggedData
from fedopl.messages.learning.score_sums_by_fold import ScoreSumsByFold
from fedopl.policies.linear import LinearPolicy
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.study.study import Study


def means_by_fold(
    data: LoggedData, whole: ScoredChunk, columns: list[IntArray] | None
) -> ScoreSumsByFold:
    """Means over each fold of these rows, whose scores the chunk has."""
    means = [score_means(data, whole.scores, rows, columns) for rows in whole.fold_slices]
    weights = whole.data.weights_of()
    by_fold = np.array([weights[rows].sum() for rows in whole.fold_slices])
    n_grams = max(len(one.grams) for one in means)
    return ScoreSumsByFold(
        weights=by_fold / by_fold.sum(),
        # One gram serves all actions in a fold where all rows have all scores.
        grams=np.stack([np.broadcast_to(m.grams, (n_grams, *m.grams.shape[1:])) for m in means]),
        products=np.stack([one.products for one in means]),
        squares=np.stack([one.squares for one in means]),
        shares=np.stack([one.shares for one in means]),
    )


def local_policies_by_fold(
    own: ScoredChunk, study: Study, columns: list[IntArray] | None
) -> list[LinearPolicy]:
    """What the client would learn alone without each fold, from scores that rest on nobody else."""
    sums = means_by_fold(own.data, own, columns)
    alone = [
        ScoreStatistics(study=study, sums={"own": sums.without(fold)})
        for fold in range(len(sums.weights))
    ]
    return [statistics.solve({"own": 1.0}) for statistics in alone]
