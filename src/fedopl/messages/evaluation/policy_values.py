"""What policies are worth on a client's rows, and how those values vary together."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Self

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.combining import PerClient
from fedopl.messages.evaluation.others_learned import MOST_PERSONAL, CarriesOthers
from fedopl.messages.evaluation.policy_fields import AsksAboutSplit, AsksByFold, most_in_query
from fedopl.messages.message import Array, Asked, Axis, Message, RowSplit, message
from fedopl.messages.plausibility import (
    CELL_TOLERANCE,
    EIGENVALUE_TOLERANCE,
    SLACK,
    fault_in_moments,
)
from fedopl.study.guardrail import guarded_columns
from fedopl.study.mixture import BestSkew, Minimax
from fedopl.study.study import Study

# Every client adds two candidates to those it is asked about: the logging policy and its own.
N_OWN_CANDIDATES = 2
NO_FOLD = -1  # that all training rows count
# Queries for each client's own policy, where regrets are against it, and where clients are
# compared: enough for a hundred clients.
MOST_OWN, MOST_COMPARED = 256, 64
# Whole groups of rows are held out together, so their rows need not be in the agreed proportion.
MOST_BY_GROUPS = 20
MOST_WIDER = 3.0  # the largest factor of a difference's variance across folds
ROUNDING_OF_SQUARES = 1e-13  # the rounding error of a sum of squares, as a share of it


@message
class Values(Message, code=72):
    """Means of the candidates' scores and the covariances of those means."""

    n_rows: Annotated[int, PerClient]  # that have scores for what policies decide
    of_rows: Annotated[int, PerClient]  # that there are in the split
    degrees_of_freedom: Annotated[int, PerClient]
    means: Annotated[Array, (Axis.CANDIDATES,), PerClient]
    covariances: Annotated[Array, (Axis.CANDIDATES, Axis.CANDIDATES), PerClient]

    def picked(self, places: Sequence[int]) -> Self:
        """The values of the candidates at these places."""
        square = np.ix_(places, places)
        return replace(self, means=self.means[places], covariances=self.covariances[square])

    def variance(self, contrast: FloatArray) -> float:
        """The variance of a contrast; zero if it is no larger than rounding.

        Policies that decide alike differ only by rounding.
        """
        found = float(contrast @ self.covariances @ contrast)
        size = float(np.abs(contrast) @ np.abs(self.covariances) @ np.abs(contrast))
        return found if found > ROUNDING_OF_SQUARES * size else 0.0


@message
class EstimateValues(
    AsksByFold[Values],
    CarriesOthers[Values],
    AsksAboutSplit[Values],
    code=142,
    asked=Asked.EACH,
    permission="values",
):
    """Ask what these policies are worth on rows of this split, by an outcome of the study.

    To choose by these values for a fold, they are without it. If what all others learned comes
    along, the client moves it toward its own rows, and tells what its personal policy is worth,
    too.
    """

    title = "What policies are worth"
    content = "means of values, and how precise they are"

    outcome: int = 0  # what the study is about; from 1 on, the columns that guardrails are about
    without: int = NO_FOLD  # if not of valued rows, those of this fold do not count

    @classmethod
    def content_in(cls, study: Study) -> str:
        """With guardrails, by their columns, too; and never a client's personal policy."""
        guarded = guarded_columns(study)
        also = f"; also by {', '.join(guarded)}" if guarded else ""
        never = "; never the personal policy itself" if study.personalises else ""
        return cls.content + also + never

    @classmethod
    def most(cls, study: Study) -> int:
        """Those of valued rows, by each outcome; and for each version, values to choose by."""
        found = 1 + (study.linear.oracle == "direct") + len(study.left_out) * _n_to_choose_by(study)
        found += len(guarded_columns(study)) + study.personalises * (MOST_PERSONAL - 1)
        return found + (MOST_COMPARED if study.joining.diagnose else 0)

    @property
    def n_candidates(self) -> int:
        """How many values it asks for."""
        return self.n_asked + self.is_personal + N_OWN_CANDIDATES

    def is_plausible(self, study: Study) -> bool:
        """An outcome and folds that there are, and others' numbers that fit the study."""
        if not 0 <= self.outcome <= len(guarded_columns(study)):
            return False
        is_valued = self.split in (RowSplit.EVALUATION, RowSplit.EACH_FOLD)
        if self.is_personal and (self.outcome or not is_valued):
            return False
        if self.is_by_fold != (self.split is RowSplit.EACH_FOLD) or not self.versions_fit(study):
            return False
        folds = () if is_valued else study.left_out[:-1]
        if self.without not in (NO_FOLD, *folds):
            return False
        return self.fits(study, self) and super().is_plausible(study)

    def fault_in(self, answer: Values, study: Study, n_rows: int) -> str | None:
        """One mean for each candidate, and covariances to go with them, of rows that are there."""
        if self.outcome:  # whose range nobody declared
            study = study.model_copy(update={"declared": type(study.declared)()})
        fault = _fault_in_means(answer, self.n_candidates, self.split, study, n_rows)
        check = _fault_in_differences if self.is_by_fold else fault_in_moments
        return fault or check(answer.covariances)


def _n_to_choose_by(study: Study) -> int:
    """The most queries for values that one version of what is learned is chosen by.

    Candidates are chosen by values. So are mixtures: on a path, and for linear policies by steps.
    """
    plan, policy = study.mixture, study.policy
    if policy.compares_candidates:
        return 3 if isinstance(plan, BestSkew) else 1
    if isinstance(plan, BestSkew):
        return queries_on_path(study, plan)
    return MOST_OWN + plan.steps + 1 if isinstance(plan, Minimax) and not policy.on_grid else 0


def queries_on_path(study: Study, plan: BestSkew) -> int:
    """How many queries carry the policies of a path, and each the one that the path begins with."""
    return math.ceil(len(plan.alphas) / (most_in_query(study) - 1))


def _fault_in_differences(covariances: FloatArray) -> str | None:
    """Check that no value and no difference of two has a variance that none can have.

    Across folds, these are all that covariances say: each was made larger by a factor of its own.
    """
    own = np.diagonal(covariances)
    sizes = own + own[:, None]
    apart = sizes - 2 * covariances
    if own.min() < 0 or (apart < -EIGENVALUE_TOLERANCE * sizes).any():
        return "a variance is negative"
    deviations = np.sqrt(own)
    if (apart > MOST_WIDER * (deviations + deviations[:, None]) ** 2 * (1 + CELL_TOLERANCE)).any():
        return "a difference varies more than the two values together"
    return None


def _fault_in_means(
    answer: Values, n_candidates: int, split: RowSplit, study: Study, n_rows: int
) -> str | None:
    """What cannot be true of values of so many candidates, the last two of them the client's."""
    if len(answer.means) != n_candidates or answer.n_rows < 1:
        return f"valued {len(answer.means)} policies of {n_candidates}"
    if answer.covariances.shape != (n_candidates, n_candidates):
        return "the covariances do not fit the means"
    if answer.degrees_of_freedom < 0:
        return "the degrees of freedom are negative"
    if not answer.n_rows <= answer.of_rows <= most_rows(study, split, n_rows):
        return f"values of {answer.n_rows:,} of {answer.of_rows:,} rows, of which it has fewer"
    if answer.degrees_of_freedom >= answer.n_rows:
        return "more degrees of freedom than rows"
    most = study.largest_net
    logging = answer.means[n_candidates - N_OWN_CANDIDATES]
    if most is not None and abs(logging) > most * (1 + CELL_TOLERANCE):
        return f"its mean outcome lies beyond ±{most:g}, by what is declared"
    return None


def most_rows(study: Study, split: RowSplit, n_rows: int) -> float:
    """How many rows of a split there can be, given how many a client enrolled with, if it did."""
    if not n_rows:
        return math.inf
    if split is not RowSplit.EVALUATION:
        return n_rows + SLACK
    held_out = n_rows * study.evaluation.share / (1 - study.evaluation.share)
    without_groups = study.table is not None and study.table.group is None
    return held_out * (1 if without_groups else MOST_BY_GROUPS) + SLACK * study.n_actions
