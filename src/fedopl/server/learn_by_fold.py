"""The policy that would have been learned without each fold, from sums that clients reported."""

from collections.abc import Mapping
from dataclasses import replace

from fedopl.messages.learning.score_sums_by_fold import ScoreSumsByFold
from fedopl.policies.policy import Policy
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.results.sums.term_choice import choose_terms
from fedopl.server.aggregate.setting import Setting
from fedopl.study.mixture import renormalised


def learn_by_fold(setting: Setting) -> list[Policy]:
    """One policy for each fold, learned from the other folds of all clients; no client is asked."""
    by_fold: Mapping[str, ScoreSumsByFold] = setting.by_fold or {}
    weights = renormalised(setting.weights, by_fold.keys())
    study = setting.study
    policies: list[Policy] = []
    for fold in range(study.nuisances.folds):
        others = [other for other in range(study.nuisances.folds) if other != fold]
        sums = {name: own.of_folds(others) for name, own in by_fold.items()}
        rows = {n: setting.rows[n] * float(own.weights[others].sum()) for n, own in by_fold.items()}
        borrowed = setting.statistics.borrowed
        taken = setting.statistics.taken
        statistics = ScoreStatistics(
            study=study,
            sums=sums,
            rows=rows,
            borrowed=borrowed,
            taken=taken and taken.of_folds(others),
        )
        by_noise = statistics.noise_weights(weights)
        choice = choose_terms(study, by_fold, weights, others, by_noise)
        policies.append(replace(statistics, choice=choice).solve(weights))
    return policies
