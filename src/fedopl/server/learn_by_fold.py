"""The policy that would have been learned without each fold, from sums that clients reported."""

from collections.abc import Mapping

from fedopl.messages.learning.score_sums_by_fold import ScoreSumsByFold
from fedopl.policies.policy import Policy
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.server.aggregate.setting import Setting
from fedopl.study.mixture import renormalised


def learn_by_fold(setting: Setting) -> list[Policy]:
    """One policy for each fold, learned from the same clients' other folds; nobody is asked."""
    by_fold: Mapping[str, ScoreSumsByFold] = setting.by_fold or {}
    weights = renormalised(setting.weights, by_fold.keys())
    return [
        ScoreStatistics(
            study=setting.study, sums={name: sums.without(fold) for name, sums in by_fold.items()}
        ).solve(weights)
        for fold in range(setting.study.nuisances.folds)
    ]
