"""Sums for classifiers that distinguish one client's contexts from all others'."""

from typing import Annotated

import numpy as np

from fedopl.messages.combining import PerClient
from fedopl.messages.diagnosis.compared_models import AsksIfJoiningPays
from fedopl.messages.message import Array, Asked, Axis, Message, RowSplit, message
from fedopl.messages.plausibility import CORNER_TOLERANCE, fault_in_squares
from fedopl.study.study import Study

MOST_ROUNDS = 7  # of Newton's method
MOST_TARGETS = 10  # whose contexts are distinguished from all others' at once


@message
class ClassifierSums(Message, code=129):
    """By target, means over fitted rows with σ = σ(θᵀx), or the share of other rows assigned.

    A row is assigned to the target if θᵀx > 0. Parts that were not asked for are zero.
    """

    loss: Annotated[Array, (Axis.TARGETS,), PerClient]  # log(1 + exp(θᵀx))
    pulls: Annotated[Array, (Axis.TARGETS, Axis.PARAMETERS), PerClient]  # σ·x
    # σ(1 − σ)·xxᵀ
    hessian: Annotated[Array, (Axis.TARGETS, Axis.PARAMETERS, Axis.PARAMETERS), PerClient]
    target_share: Annotated[Array, (Axis.TARGETS,), PerClient]
    target_share_variance: Annotated[Array, (Axis.TARGETS,), PerClient]


@message
class ClassifyContexts(AsksIfJoiningPays[ClassifierSums], code=15, asked=Asked.EACH):
    """Ask how these classifiers treat the client's contexts: one classifier per client.

    On rows that they are fitted to, the answer serves the next step of Newton's method; on others,
    the accuracy. All clients are asked the same, whether a target or not.
    """

    title = "Whose contexts these are"
    content = "slopes of classifiers, and shares of rows"
    split: RowSplit
    parameters: Annotated[Array, (Axis.TARGETS, Axis.PARAMETERS)]

    @classmethod
    def most(cls, _study: Study) -> int:
        """Steps of the search, and one query about other rows."""
        return MOST_ROUNDS + 1

    def fault_in(self, answer: ClassifierSums, study: Study, _n_rows: int) -> str | None:
        """Check shares of rows and, on fitted rows, means: scaled ones would gain weight."""
        fault = _fault_in_shares(answer, len(self.parameters))
        if fault or self.split is judged_split(study):
            return fault
        return _fault_in_means(answer, self.parameters)


def fitted_split(study: Study) -> RowSplit:
    """The rows that classifiers are fitted to: all but the first fold, if none are held out."""
    return RowSplit.FITTING if study.evaluation.is_cross_fitted else RowSplit.TRAINING


def judged_split(study: Study) -> RowSplit:
    """The rows that show how good they are: the first fold, if none are held out."""
    return RowSplit.VALIDATION if study.evaluation.is_cross_fitted else RowSplit.EVALUATION


def _fault_in_shares(answer: ClassifierSums, n_targets: int) -> str | None:
    """Check shares of rows."""
    if any(len(value) != n_targets for value in vars(answer).values() if np.ndim(value)):
        return f"answers for other classifiers than {n_targets}"
    shares, variances = answer.target_share, answer.target_share_variance
    if ((shares < 0) | (shares > 1 + CORNER_TOLERANCE) | (variances < 0)).any():
        return "a share of rows is outside 0 to 1"
    return None


def _fault_in_means(answer: ClassifierSums, parameters: Array) -> str | None:
    """Check that the mean of σ lies in 0 to 1, and that of σ(1 − σ) below its largest value."""
    chances, curvatures = answer.pulls[:, -1], answer.hessian[:, -1, -1]
    if (np.abs(chances - 0.5) > 0.5 + CORNER_TOLERANCE).any() or (answer.loss < 0).any():
        return "the mean chance of a classifier is outside 0 to 1"
    if (curvatures > chances * (1 - chances) + CORNER_TOLERANCE).any():
        return "the mean curvature of a classifier is above that of its mean chance"
    undecided = ~parameters.any(axis=1)
    if (np.abs(chances[undecided] - 0.5) > CORNER_TOLERANCE).any():
        return "the mean of one half is not one half"
    return fault_in_squares(answer.hessian)
