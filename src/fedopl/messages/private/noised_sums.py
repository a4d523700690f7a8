"""The first sums of a study with differential privacy: squares, and products with outcomes."""

from typing import Annotated

from fedopl.messages.combining import Sum
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.sensitivity import Moves
from fedopl.study.private.private_setting import Bounds
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
