"""What would have been learned without each fold, from sums that clients reported."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from fedopl.messages.learning.score_sums_by_fold import ScoreSumsByFold
from fedopl.policies.policy import Policy
from fedopl.results.spending.budget_curve import at_price
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.results.sums.term_choice import choose_terms
from fedopl.server.aggregate.setting import Setting, best_of_arms
from fedopl.study.mixture import renormalised


def learn_by_fold(setting: Setting, price: float = 0.0) -> list[Policy]:
    """One policy for each fold, learned from the other folds of all clients; no client is asked.

    With a price on what the budget of the study is about. Trees were learned together with the one
    of all rows.
    """
    if setting.trees_by_fold:
        return setting.trees_by_fold(price)
    by_fold: Mapping[str, ScoreSumsByFold] = setting.by_fold or {}
    weights, policies = renormalised(setting.weights, by_fold.keys()), list[Policy]()
    for others, statistics in _without_each_fold(setting):
        by_noise = statistics.noise_weights(weights)
        choice = choose_terms(setting.study, by_fold, weights, others, by_noise)
        found = replace(statistics, choice=choice).solve(weights)
        budget = setting.study.budget
        policies.append(at_price(found, price, budget.spent(setting.study)) if budget else found)
    return policies


def arms_by_fold(setting: Setting) -> list[str]:
    """For each fold, the arm that came out best in the other folds of all clients."""
    weights = renormalised(setting.weights, (setting.by_fold or {}).keys())
    return [
        best_of_arms(setting.study, statistics.arm_values(weights))
        for _, statistics in _without_each_fold(setting)
    ]


def _without_each_fold(setting: Setting) -> Iterator[tuple[list[int], ScoreStatistics]]:
    """For each fold, the others, and the sums over these."""
    by_fold: Mapping[str, ScoreSumsByFold] = setting.by_fold or {}
    folds = range(setting.study.nuisances.folds)
    taken = setting.statistics.taken
    for fold in folds:
        others = [other for other in folds if other != fold]
        yield (
            others,
            ScoreStatistics(
                study=setting.study,
                sums={name: own.of_folds(others) for name, own in by_fold.items()},
                rows={
                    name: setting.rows[name] * float(own.weights[others].sum())
                    for name, own in by_fold.items()
                },
                left_out=(fold,),
                borrowed=setting.statistics.borrowed,
                taken=taken and taken.of_folds(others),
            ),
        )
