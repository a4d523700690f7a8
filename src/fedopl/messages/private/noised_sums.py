"""Sums with noise, in the order in which they are asked: of numbers, the first ones, and of steps.

Where numbers lie within their ranges is asked before anything else. The first sums to learn from
are squares, and products with outcomes. A step sums residuals of outcome models, over propensities.
With linear outcome models, the part of a doubly robust score that they explain follows from the
first sums. So only the part of the residuals is released, and a row counts for one action alone.
"""

from typing import Annotated

import numpy as np

from fedopl.messages.combining import PerClient, Sum
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.sensitivity import UNMOVED, Moves, beyond_rows
from fedopl.study.private.privacy_plan import Range
from fedopl.study.private.private_setting import Bounds, PrivateSetting, with_ranges
from fedopl.study.study import Study


def _squares_move(study: Study) -> float:
    """How far a row moves squares: it is in one action's ffᵀ, whose Frobenius length is |f|²."""
    return Bounds(study.n_terms, study.n_actions).square


def _products_move(study: Study) -> float:
    return Bounds(study.n_terms, study.n_actions).product


@message
class NoisedSums(Message, code=90):
    """Σ ffᵀ and Σ f·y over training rows of each action, in units of the study, with noise."""

    squares: Annotated[
        Array, (Axis.ACTIONS, Axis.TERMS, Axis.TERMS), Moves(_squares_move, "squares"), Sum
    ]
    products: Annotated[Array, (Axis.ACTIONS, Axis.TERMS), Moves(_products_move, "products"), Sum]


@message
class SumPrivately(Query[NoisedSums], code=26, asked=Asked.EACH):
    """Ask to sum squares of features and products with outcomes, and add noise."""

    title = "First sums, with noise"
    content = "sums of squares of features, and of products with outcomes, for each action"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether the study has differential privacy."""
        return study.privacy is not None

    def shapes(self, study: Study) -> dict[str, tuple[int, ...]]:
        """Squares and products of all terms, by action."""
        n_actions, n_columns = study.n_actions, study.n_terms + 1
        return {"squares": (n_actions, n_columns, n_columns), "products": (n_actions, n_columns)}


def _residuals_move(study: Study) -> float:
    return Bounds(study.n_terms, study.n_actions).step


@message
class ResidualSums(Message, code=91):
    """Σ f·(y − fᵀθ)/e over training rows of each action, bounded row by row, with noise."""

    residuals: Annotated[Array, (Axis.ACTIONS, Axis.TERMS), Moves(_residuals_move, "step"), Sum]


@message
class SumResiduals(Query[ResidualSums], code=27, asked=Asked.EACH):
    """Ask to sum the residuals of these outcome models, and add noise."""

    title = "A step of learning, with noise"
    content = "sums of what outcome models leave, times features, over propensities"
    number: int  # of the step, counted from zero
    n_terms: int  # how many terms are used, the first ones; nothing is said of others
    parameters: Annotated[Array, (Axis.ACTIONS, Axis.TERMS)]

    @property
    def columns(self) -> list[int]:
        """The columns that are used: the first terms, and the intercept."""
        return [*range(self.n_terms), self.parameters.shape[1] - 1]

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether linear policies are learned with differential privacy."""
        return study.privacy is not None and study.policy.kind == "linear"

    def is_plausible(self, study: Study) -> bool:
        """Check that the terms form a family; the fewer they are, the smaller the noise."""
        return self.n_terms in PrivateSetting(study).families and super().is_plausible(study)

    def fault_in(self, answer: ResidualSums, study: Study, n_rows: int) -> str | None:
        """Check that no sum is larger than its rows and noise allow."""
        return beyond_rows(answer, study, n_rows)

    def shapes(self, study: Study) -> dict[str, tuple[int, ...]]:
        """A number for each action and term, used or not."""
        return {"residuals": (study.n_actions, study.n_terms + 1)}

    @classmethod
    def most(cls, study: Study) -> int:
        """One query per step: noise is set for this number of steps."""
        return PrivateSetting(study).n_steps if study.privacy else 0


def _moments_move(study: Study) -> float:
    return PrivateSetting(study).moments_move


@message
class NoisedMoments(Message, code=116):
    """Over training rows, Σ z and Σ z² − 2 of each number in units of its range, with noise."""

    sums: Annotated[Array, (Axis.NUMBERS,), Moves(_moments_move, "means"), Sum]
    squares: Annotated[Array, (Axis.NUMBERS,), Moves(_moments_move, "spreads"), Sum]


@message
class MeasureNumbers(Query[NoisedMoments], code=52, asked=Asked.EACH):
    """Ask to sum up numbers and their squares, and add noise."""

    title = "Where numbers lie, with noise"
    content = "sums of numbers and of their squares, within declared ranges"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether ranges are to be measured."""
        return study.privacy is not None and not study.privacy.is_measured

    def shapes(self, study: Study) -> dict[str, tuple[int, ...]]:
        """Two sums for each number."""
        n_numbers = len(PrivateSetting(study).plan.measured)
        return {"sums": (n_numbers,), "squares": (n_numbers,)}


@message
class RangesTaken(Message, code=117):
    """How many numbers have measured ranges."""

    n_ranges: Annotated[int, UNMOVED, PerClient]


@message
class TakeRanges(Query[RangesTaken], code=53, asked=Asked.EACH):
    """Ask to continue with the study that has these ranges, whose hash the query carries.

    A client continues with the first such study and no other.
    """

    title = "Ranges that were measured"
    content = "how many ranges there are"
    ranges: Annotated[Array, (Axis.NUMBERS, Axis.TWO)]  # in the order of names

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether ranges were measured."""
        return study.privacy is not None and study.privacy.declared_ranges is not None

    @classmethod
    def of(cls, study: Study) -> "TakeRanges":
        """The query that makes clients continue with this study."""
        plan = PrivateSetting(study).plan
        return cls(ranges=np.array([plan.ranges[name] for name in plan.measured]))

    def named(self, study: Study) -> dict[str, Range]:
        """The ranges by name."""
        names = PrivateSetting(study).plan.measured
        ends = [(float(low), float(high)) for low, high in self.ranges]
        return dict(zip(names, ends, strict=True))

    def study_after(self, study: Study) -> Study | None:
        """The study that continues this one; None if it can have no such ranges."""
        try:
            return with_ranges(study, self.named(study))
        except ValueError:
            return None
