"""What policies are worth on a client's rows, and how those values vary together."""

import math
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Annotated, Self

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.combining import PerClient
from fedopl.messages.evaluation.others_learned import MOST_PERSONAL, CarriesOthers
from fedopl.messages.evaluation.policy_fields import (
    AsksAboutSplit,
    AsksByFold,
    most_in_query,
    valued_split,
)
from fedopl.messages.message import (
    LARGEST_ASKED,
    Array,
    Asked,
    Axis,
    Message,
    RowSplit,
    message,
)
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
NO_ACTION = -1  # that gains are over: values are asked for, and not what is spent
N_PRICES = 64
# Trees along a path of prices: a few questions have few answers, so few trees are any different.
N_TREES = 16
# Queries for each client's own policy, where regrets are against it, and where clients are
# compared: enough for a hundred clients.
MOST_OWN, MOST_COMPARED = 256, 64
# Whole groups of rows are held out together, so their rows need not be in the agreed proportion.
MOST_BY_GROUPS = 20
MOST_WIDER = 3.0  # the largest factor of a difference's variance across folds
ROUNDING_OF_SQUARES = 1e-13  # the rounding error of a sum of squares, as a share of it


def n_priced(study: Study) -> int:
    """How many policies may meet a budget: at prices, trees along a path, or candidates."""
    if study.policy.compares_candidates:
        return len(study.candidates)
    return N_TREES if study.policy.on_grid else N_PRICES


def n_points(study: Study) -> int:
    """These, everybody getting each of the actions, and what was done; nothing without a budget."""
    return 0 if study.budget is None else n_priced(study) + study.n_actions + 1


@message
class Values(Message, code=148):
    """Means of the candidates' scores and the covariances of those means.

    Or, of each of many policies alone, means of what it gains and spends, and their covariances.
    """

    n_rows: Annotated[int, PerClient]  # that have scores for what policies decide
    of_rows: Annotated[int, PerClient]  # that there are in the split
    degrees_of_freedom: Annotated[int, PerClient]
    means: Annotated[Array, (Axis.CANDIDATES,), PerClient]
    covariances: Annotated[Array, (Axis.CANDIDATES, Axis.CANDIDATES), PerClient]
    points: Annotated[Array, (Axis.CURVE_POINTS, Axis.TWO), PerClient] = field(
        default_factory=lambda: np.empty((0, 2))
    )
    squares: Annotated[Array, (Axis.CURVE_POINTS, Axis.TWO, Axis.TWO), PerClient] = field(
        default_factory=lambda: np.empty((0, 2, 2))
    )

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
    too. If gains over one action for all are asked for, these are told with what is spent: of every
    policy, at every price, then of every action given to everybody, then of what was done. At a
    price μ, a linear policy decides by argmax_a θ_aᵀφ(x) − μ·c_a(x), with the study's costs c.
    """

    title = "What policies are worth"
    content = "means of values, and how precise they are"

    outcome: int = 0  # what the study is about; from 1 on, the columns that guardrails are about
    without: int = NO_FOLD  # if not of valued rows, those of this fold do not count
    against: int = NO_ACTION  # the action that gains are over, if spending is asked for
    # Rising from zero; empty for policies that have no price in them.
    prices: Annotated[Array, (Axis.PRICES,)] = field(default_factory=lambda: np.empty(0))

    @classmethod
    def content_in(cls, study: Study) -> str:
        """With guardrails or a budget, more columns; and never a client's personal policy."""
        guarded = guarded_columns(study)
        also = f"; also by {', '.join(guarded)}" if guarded else ""
        also += "; also what policies at prices gain and spend" if study.budget else ""
        never = "; never the personal policy itself" if study.personalises else ""
        return cls.content + also + never

    @classmethod
    def left_out_in(cls, study: Study) -> frozenset[str]:
        """What is spent, without a budget."""
        return frozenset(() if study.budget else ("points", "squares"))

    @classmethod
    def most(cls, study: Study) -> int:
        """Those of valued rows, by each outcome; and for each version, values to choose by."""
        # Where rows are held out, what was not learned is valued on all rows, in another query.
        found = (1 + len(guarded_columns(study))) * (1 + (study.evaluation.share > 0))
        found += (study.linear.oracle == "direct") + (study.budget is not None)
        found += len(study.left_out) * _n_to_choose_by(study)
        found += study.personalises * (MOST_PERSONAL - 1)
        return found + (MOST_COMPARED if study.joining.diagnose else 0)

    @property
    def n_candidates(self) -> int:
        """How many values it asks for."""
        return self.n_asked + self.is_personal + N_OWN_CANDIDATES

    def is_plausible(self, study: Study) -> bool:
        """An outcome and folds that there are, and others' numbers that fit the study."""
        if self.is_by_fold != (self.split is RowSplit.EACH_FOLD) or not self.versions_fit(study):
            return False
        if self.against != NO_ACTION:
            return self._may_meet_budget(study)
        if len(self.prices) or not 0 <= self.outcome <= len(guarded_columns(study)):
            return False
        is_valued = self.split in (RowSplit.EVALUATION, RowSplit.EACH_FOLD)
        if self.is_personal and (self.outcome or not is_valued):
            return False
        if self.split is RowSplit.ALL and study.evaluation.is_cross_fitted:
            return False
        folds = () if is_valued else study.left_out[:-1]
        if self.without not in (NO_FOLD, *folds):
            return False
        return self.fits(study, self) and super().is_plausible(study)

    def _may_meet_budget(self, study: Study) -> bool:
        """As many policies or prices as the study has, and an action that there is."""
        is_usual = self.split is valued_split(study) and self.without == NO_FOLD
        if self.outcome or self.is_personal or not is_usual or not self.fits(study, self):
            return False
        n_asked, prices = self.n_asked * max(1, len(self.prices)), self.prices
        if study.budget is None or n_asked != n_priced(study):
            return False
        if not 0 <= self.against < study.n_actions:
            return False
        rise = not len(prices) or (prices[0] == 0 and bool((np.diff(prices) > 0).all()))
        has_prices = study.policy.kind == "linear" and prices.max(initial=0) <= LARGEST_ASKED
        return rise and (has_prices or not len(prices))

    def fault_in(self, answer: Values, study: Study, n_rows: int) -> str | None:
        """One mean for each candidate, and covariances to go with them, of rows that are there."""
        n_told = n_points(study) if self.against != NO_ACTION else 0
        if (len(answer.points), len(answer.squares)) != (n_told, n_told):
            return f"told what {len(answer.points)} policies and actions of {n_told} spend"
        if fault := _fault_in_counts(answer, self.split, study, n_rows):
            return fault
        if n_told:
            is_more = answer.means.size or answer.covariances.size
            return "values were not asked for" if is_more else fault_in_moments(answer.squares)
        if self.outcome:  # whose range nobody declared
            study = study.model_copy(update={"declared": type(study.declared)()})
        fault = _fault_in_means(answer, self.n_candidates, study)
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


def _fault_in_counts(answer: Values, split: RowSplit, study: Study, n_rows: int) -> str | None:
    """What cannot be true of how many rows are valued."""
    if answer.degrees_of_freedom < 0:
        return "the degrees of freedom are negative"
    if not 1 <= answer.n_rows <= answer.of_rows <= most_rows(study, split, n_rows):
        return f"values of {answer.n_rows:,} of {answer.of_rows:,} rows, of which it has fewer"
    if answer.degrees_of_freedom >= answer.n_rows:
        return "more degrees of freedom than rows"
    return None


def _fault_in_means(answer: Values, n_candidates: int, study: Study) -> str | None:
    """What cannot be true of values of so many candidates, the last two of them the client's."""
    if len(answer.means) != n_candidates:
        return f"valued {len(answer.means)} policies of {n_candidates}"
    if answer.covariances.shape != (n_candidates, n_candidates):
        return "the covariances do not fit the means"
    most = study.largest_net
    logging = answer.means[n_candidates - N_OWN_CANDIDATES]
    if most is not None and abs(logging) > most * (1 + CELL_TOLERANCE):
        return f"its mean outcome lies beyond ±{most:g}, by what is declared"
    return None


def most_rows(study: Study, split: RowSplit, n_rows: int) -> float:
    """How many rows of a split there can be, given how many a client enrolled with, if it did."""
    if not n_rows:
        return math.inf
    if split not in (RowSplit.EVALUATION, RowSplit.ALL):
        return n_rows + SLACK
    held_out = n_rows * study.evaluation.share / (1 - study.evaluation.share)
    without_groups = study.table is not None and study.table.group is None
    most = held_out * (1 if without_groups else MOST_BY_GROUPS) + SLACK * study.n_actions
    return most if split is RowSplit.EVALUATION else most + n_rows
