"""What the server knows once clients have enrolled and sent sums. Learning starts from it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.computed_once import computed_once
from fedopl.messages.learning.score_sums import ContrastSquares, ScoreSumsByFold
from fedopl.messages.trees.cell_sums import CellSums
from fedopl.results.sums.finite_statistics import FiniteStatistics
from fedopl.results.sums.for_newcomers import ForNewcomers
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.results.sums.term_choice import choose_terms
from fedopl.results.sums.tree_statistics import Searched
from fedopl.server.exchange.answers import Answers
from fedopl.study.mixture import Weights, renormalised
from fedopl.study.study import Study


@dataclass(frozen=True, eq=False, kw_only=True)
class Setting:
    """The study, the mixture over the clients that take part, and their sums."""

    study: Study
    rows: dict[str, int]  # training rows of every client that enrolled
    weights: Weights
    statistics: ScoreStatistics
    row_weights: dict[str, float] | None = None  # total weight of those rows, if clients reported
    by_fold: Answers[ScoreSumsByFold] | None = None  # if the study asks for sums by fold
    cells: Answers[CellSums] | None = None  # sent with the sums, if the grid was agreed before
    trees_by_fold: Sequence[Searched] = ()  # learned without each fold, as asking led to them
    choices_by_fold: Sequence[FiniteStatistics] = ()  # what candidates are worth without each fold
    weights_by_fold: Sequence[Weights] = ()  # found without each fold, if the run finds them
    found_from: Weights | None = None  # with which the run began to find its weights
    for_newcomers: ForNewcomers | None = None  # if clients may join later
    contrasts: Answers[ContrastSquares] | None = None  # if clients have personal policies
    clipped: Mapping[str, int] = field(default_factory=dict)  # numbers beyond agreed ranges

    @computed_once
    def without_each_fold(self) -> list[ScoreStatistics]:
        """For each fold, the sums over the others, and the terms that were chosen by these."""
        return [self.without([fold], fold) for fold in range(self.study.nuisances.folds)]

    def without(self, folds: Collection[int | None], screening: int) -> ScoreStatistics:
        """The sums over all but these folds, and the terms chosen by these, of one screening."""
        by_fold: Mapping[str, ScoreSumsByFold] = self.by_fold or {}
        others = [fold for fold in range(self.study.nuisances.folds) if fold not in folds]
        taken = self.statistics.taken
        statistics = ScoreStatistics(
            study=self.study,
            sums={name: own.of_folds(others) for name, own in by_fold.items()},
            rows={
                name: self.rows[name] * float(own.weights[others].sum())
                for name, own in by_fold.items()
            },
            screening=screening,
            borrowed=self.statistics.borrowed,
            taken=taken and taken.of_folds(others),
        )
        # Terms are chosen before weights are found, of all rows and without a fold.
        weights = renormalised(self.found_from or self.weights, by_fold.keys())
        by_noise = statistics.noise_weights(weights)
        choice = choose_terms(self.study, by_fold, weights, others, by_noise, screening)
        return replace(statistics, choice=choice)

    def weights_without(self, fold: int | None) -> Weights:
        """The mixture that was found without a fold, or is agreed, or is of all rows for None."""
        by_fold = self.weights_by_fold
        return self.weights if fold is None or not by_fold else by_fold[fold]

    @property
    def best_arm(self) -> str:
        """The constant arm with the largest value on training rows."""
        return best_of_arms(self.study, self.statistics.arm_values(self.weights))


def best_of_arms(study: Study, values: FloatArray) -> str:
    """The action with the largest value among those that everybody may get; if none, among all.

    An action that some may not get is not a policy for everybody. Its value over all rows is also
    not its value when only those get it who may.
    """
    known = np.where(np.isnan(values), -np.inf, values)
    limited = study.permissions.limited(study.actions) if study.permissions else ()
    open_to_all = np.array([action not in limited for action in study.actions])
    usable = np.where(open_to_all, known, -np.inf)
    return study.actions[int(np.argmax(usable if np.isfinite(usable).any() else known))]
