"""What is known once clients have enrolled and sent sums: where learning starts."""

from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.learning.contrast_squares import ContrastSquares
from fedopl.messages.learning.score_sums_by_fold import ScoreSumsByFold
from fedopl.messages.trees.cell_sums import CellSums
from fedopl.results.sums.for_newcomers import ForNewcomers
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.server.exchange.answers import Answers
from fedopl.study.mixture import Weights
from fedopl.study.study import Study


@dataclass(frozen=True, eq=False, kw_only=True)
class Setting:
    """The study, the mixture over the clients that take part, and their sums."""

    study: Study
    rows: dict[str, int]  # training rows of everybody who enrolled
    weights: Weights
    statistics: ScoreStatistics
    row_weights: dict[str, float] | None = None  # what those weigh together, where clients told
    by_fold: Answers[ScoreSumsByFold] | None = None  # where a study asks for them
    cells: Answers[CellSums] | None = None  # reported with the sums, where a grid was agreed
    for_newcomers: ForNewcomers | None = None  # where clients may join later
    contrasts: Answers[ContrastSquares] | None = None  # where clients have policies of their own

    @property
    def best_arm(self) -> str:
        """The constant arm of the largest value on training rows."""
        return best_of_arms(self.study, self.statistics.arm_values(self.weights))


def best_of_arms(study: Study, values: FloatArray) -> str:
    """The action of the largest value, of those that everybody may get; of all if there are none.

    One that some may not get is no policy for everybody, and what it is worth to all is not what
    giving it to those who may get it is worth.
    """
    known = np.where(np.isnan(values), -np.inf, values)
    limited = study.permissions.limited(study.actions) if study.permissions else ()
    open_to_all = np.array([action not in limited for action in study.actions])
    usable = np.where(open_to_all, known, -np.inf)
    return study.actions[int(np.argmax(usable if np.isfinite(usable).any() else known))]
