"""Sums that are learned from with differential privacy: the first ones, then those of each step.

The first are squares, and products with outcomes. A step sums residuals of outcome models, over
propensities. With linear outcome models, the part of a doubly robust score that they explain
follows from the first sums. So only the part of the residuals is released, and a row counts for one
action alone.
"""

from typing import Annotated

from fedopl.messages.combining import Sum
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.sensitivity import Moves, beyond_rows
from fedopl.study.private.private_setting import Bounds, PrivateSetting
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
        return {
            "squares": (n_actions, n_columns, n_columns),
            "products": (n_actions, n_columns),
        }


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
