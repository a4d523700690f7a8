"""Messages about how clients differ, asked where a study asks whether joining pays.

They are about clients' own models of actions and outcomes, about whose contexts are whose, and
about how large scores are.
"""

from typing import Annotated

import numpy as np

from fedopl.messages.combining import PerClient
from fedopl.messages.message import (
    AnswerType,
    Array,
    Asked,
    Axis,
    Message,
    Query,
    RowSplit,
    message,
)
from fedopl.messages.plausibility import CELL_TOLERANCE, CORNER_TOLERANCE, fault_in_squares
from fedopl.study.study import Study

# Models are fitted without each of this many parts of the rows, and from all of them.
N_PARTS = 5


@message
class AsksIfJoiningPays(Query[AnswerType]):
    """Asked where a study asks whether joining pays."""

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether the study asks if joining pays."""
        return study.joining.diagnose


@message
class Models(Message, code=77):
    """A client's own models: softmax scores of actions, and rewards by action with variances."""

    propensities: Annotated[Array, (Axis.REPEATS, Axis.ACTIONS, Axis.PARAMETERS), PerClient]
    outcomes: Annotated[Array, (Axis.REPEATS, Axis.ACTIONS, Axis.PARAMETERS), PerClient]
    variances: Annotated[Array, (Axis.REPEATS, Axis.ACTIONS), PerClient]  # of the residuals
    supported: Annotated[Array, (Axis.ACTIONS,), PerClient]  # 0 where too few took the action


@message
class TellModels(AsksIfJoiningPays[Models], code=13, asked=Asked.EACH):
    """Ask for the client's own models of how actions were chosen, and of outcomes."""

    title = "What clients' models say"
    content = "how actions were chosen, and rewards by action"

    def fault_in(self, answer: Models, _study: Study, _n_rows: int) -> str | None:
        """Check that there is some model, and that rewards vary about it."""
        if not np.isin(answer.supported, (0.0, 1.0)).all() or not answer.supported.any():
            return "supports no action, or a part of one"
        if (answer.variances < 0).any() or (answer.variances[:, answer.supported > 0] == 0).any():
            return "a variance is not above 0"
        return None


MOST_CLIENTS = 1000  # whose models are compared in one query


@message
class ModelShifts(Message, code=130):
    """Divergences of the client's models from each of the others', corrected for noise."""

    propensity_kl: Annotated[Array, (Axis.CLIENTS,), PerClient]
    propensity_kl_noise: Annotated[Array, (Axis.CLIENTS,), PerClient]  # what was subtracted
    propensity_kl_variance: Annotated[Array, (Axis.CLIENTS,), PerClient]
    propensity_tv: Annotated[Array, (Axis.CLIENTS,), PerClient]
    propensity_tv_variance: Annotated[Array, (Axis.CLIENTS,), PerClient]
    outcome_kl: Annotated[Array, (Axis.CLIENTS,), PerClient]
    outcome_kl_noise: Annotated[Array, (Axis.CLIENTS,), PerClient]
    outcome_kl_variance: Annotated[Array, (Axis.CLIENTS,), PerClient]


@message
class CompareModels(AsksIfJoiningPays[ModelShifts], code=14, asked=Asked.EACH):
    """Ask how far these clients' models are from the client's own, at its own contexts."""

    title = "How far models differ"
    content = "differences from each client, less their noise"
    propensities: Annotated[Array, (Axis.CLIENTS, Axis.REPEATS, Axis.ACTIONS, Axis.PARAMETERS)]
    outcomes: Annotated[Array, (Axis.CLIENTS, Axis.REPEATS, Axis.ACTIONS, Axis.PARAMETERS)]
    variances: Annotated[Array, (Axis.CLIENTS, Axis.REPEATS, Axis.ACTIONS)]
    supported: Annotated[Array, (Axis.CLIENTS, Axis.ACTIONS)]  # 0 where there is no model

    def fault_in(self, answer: ModelShifts, _study: Study, _n_rows: int) -> str | None:
        """Check for one number of each kind per client; variances must not be negative."""
        n_clients = len(self.propensities)
        numbers = {name: value for name, value in vars(answer).items() if np.ndim(value) == 1}
        if any(len(value) != n_clients for value in numbers.values()):
            return f"compared other models than those of {n_clients} clients"
        if any((value < 0).any() for name, value in numbers.items() if name.endswith("variance")):
            return "a variance is negative"
        return None


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


@message
class ScoreMoments(Message, code=132):
    """Means of squared scores over training rows: of the largest in each row, and by action.

    The first of each is of max_a Γ̂(a)² over the scores a row has, the others of Γ̂(a)² over the
    rows that have it. Means of too few rows are zero.
    """

    rows: Annotated[Array, (Axis.MOMENTS,), PerClient]  # 0 where left out
    degrees_of_freedom: Annotated[Array, (Axis.MOMENTS,), PerClient]
    means: Annotated[Array, (Axis.MOMENTS,), PerClient]
    variances: Annotated[Array, (Axis.MOMENTS,), PerClient]  # of the means


@message
class TellMoments(AsksIfJoiningPays[ScoreMoments], code=16, asked=Asked.EACH):
    """Ask how large scores are: what regret bounds call the variance of policies' values."""

    title = "How large scores are"
    content = "means of squared scores, and how precise they are"

    def fault_in(self, answer: ScoreMoments, _study: Study, _n_rows: int) -> str | None:
        """Check means of squares; the largest square of a row is at least each action's."""
        counted = (answer.rows, answer.degrees_of_freedom)
        if any((part < 0).any() or (part % 1).any() for part in counted):
            return "a number of rows is not a whole number"
        if (answer.means < 0).any() or (answer.variances < 0).any():
            return "a mean of squares or a variance is negative"
        over_all = (answer.rows > 0) & (answer.rows == answer.rows[0])
        largest = answer.means[0] * (1 + CELL_TOLERANCE)
        if (answer.means[over_all] > largest).any():
            return "an action's squares are larger than the largest"
        return None
