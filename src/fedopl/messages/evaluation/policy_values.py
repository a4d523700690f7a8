"""What policies are worth on a client's rows, and how those values vary together."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Self

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.combining import PerClient
from fedopl.messages.evaluation.policy_fields import (
    AsksAboutPolicies,
    AsksAboutSplit,
)
from fedopl.messages.message import Array, Asked, Axis, Message, RowSplit, message
from fedopl.messages.plausibility import CELL_TOLERANCE, SLACK, fault_in_moments
from fedopl.study.mixture import BestSkew, Minimax
from fedopl.study.study import Study

# Every client adds two candidates to those it is asked about: the logging policy and its own.
N_OWN_CANDIDATES = 2
# Queries beside one for each step, where a mixture is found by trying many, and where clients are
# compared: enough for a hundred clients.
MOST_TRIED, MOST_COMPARED = 256, 64
# Whole groups of rows are held out together, so their rows need not be in the agreed proportion.
MOST_BY_GROUPS = 20
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
    AsksAboutPolicies[Values],
    AsksAboutSplit[Values],
    code=8,
    asked=Asked.EACH,
    permission="values",
):
    """Ask what these policies are worth on rows of this split."""

    title = "What policies are worth"
    content = "means of values, and how precise they are"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Unless values are of policies by fold."""
        return not study.evaluation.is_cross_fitted

    @classmethod
    def most(cls, study: Study) -> int:
        """Those of held-out rows, and values to choose by, if a policy is chosen by values."""
        plan = study.mixture
        found = 1 + study.policy.compares_candidates + (study.linear.oracle == "direct")
        if isinstance(plan, Minimax):
            found += plan.steps + MOST_TRIED
        if isinstance(plan, BestSkew):
            found += len(plan.alphas) + 2
        return found + (MOST_COMPARED if study.joining.diagnose else 0)

    def fault_in(self, answer: Values, study: Study, n_rows: int) -> str | None:
        """One mean for each candidate, and covariances to go with them, of rows that are there."""
        n_candidates = self.n_policies + N_OWN_CANDIDATES
        return fault_in_values(answer, n_candidates, self.split, study, n_rows)


def fault_in_values(
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
    return fault_in_moments(answer.covariances)


def most_rows(study: Study, split: RowSplit, n_rows: int) -> float:
    """How many rows of a split there can be, given how many a client enrolled with, if it did."""
    if not n_rows:
        return math.inf
    if split is not RowSplit.EVALUATION:
        return n_rows + SLACK
    held_out = n_rows * study.evaluation.share / (1 - study.evaluation.share)
    without_groups = study.table is not None and study.table.group is None
    return held_out * (1 if without_groups else MOST_BY_GROUPS) + SLACK * study.n_actions
