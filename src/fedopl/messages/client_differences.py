"""Messages that show where clients differ: their models, contexts and scores."""

from typing import Annotated

import numpy as np

from fedopl.messages.combining import PerClient
from fedopl.messages.message import Array, Asked, Axis, Message, Query, RowSplit, message
from fedopl.messages.plausibility import (
    CELL_TOLERANCE,
    CORNER_TOLERANCE,
    MOST_BY_ROUNDING,
    fault_in_squares,
)
from fedopl.study.study import Study

# Models are fitted without each of so many parts of the rows, and from all of them.
N_PARTS = 5
MOST_CLIENTS = 1000  # whose models are compared in one query
MOST_TARGETS = 10  # whose contexts are distinguished from all others' at once


@message
class Models(Message, code=77):
    """Own models: softmax scores of the actions, and rewards by action with their variances."""

    propensities: Annotated[Array, (Axis.REPEATS, Axis.ACTIONS, Axis.PARAMETERS), PerClient]
    outcomes: Annotated[Array, (Axis.REPEATS, Axis.ACTIONS, Axis.PARAMETERS), PerClient]
    variances: Annotated[Array, (Axis.REPEATS, Axis.ACTIONS), PerClient]  # of the residuals
    supported: Annotated[Array, (Axis.ACTIONS,), PerClient]  # 0 where too few took the action


@message
class TellModels(Query[Models], code=13, asked=Asked.EACH, budget="model_queries"):
    """Ask how the actions were chosen and what came of them, as the client's own models say."""

    title = "What clients' models say"
    content = "how actions were chosen, and rewards by action"

    def fault_in(self, answer: Models, _study: Study, _n_rows: int) -> str | None:
        """Some model at least, and rewards that vary about it."""
        if not np.isin(answer.supported, (0.0, 1.0)).all() or not answer.supported.any():
            return "supports no action, or a part of one"
        if (answer.variances < 0).any() or (answer.variances[:, answer.supported > 0] == 0).any():
            return "a variance is not above 0"
        return None


@message
class ModelShifts(Message, code=78):
    """Divergences of the client's models from each of the others', less what is noise in them."""

    compared: Annotated[Array, (Axis.CLIENTS,), PerClient]  # 0 where too few rows would be behind
    propensity_kl: Annotated[Array, (Axis.CLIENTS,), PerClient]
    propensity_kl_noise: Annotated[Array, (Axis.CLIENTS,), PerClient]  # what was subtracted
    propensity_kl_variance: Annotated[Array, (Axis.CLIENTS,), PerClient]
    propensity_tv: Annotated[Array, (Axis.CLIENTS,), PerClient]
    propensity_tv_variance: Annotated[Array, (Axis.CLIENTS,), PerClient]
    outcome_kl: Annotated[Array, (Axis.CLIENTS,), PerClient]
    outcome_kl_noise: Annotated[Array, (Axis.CLIENTS,), PerClient]
    outcome_kl_variance: Annotated[Array, (Axis.CLIENTS,), PerClient]


@message
class CompareModels(Query[ModelShifts], code=14, asked=Asked.EACH, budget="model_queries"):
    """Ask how far these clients' models are from the client's own, at its own contexts."""

    title = "How far models differ"
    content = "differences from each client, less their noise"
    propensities: Annotated[Array, (Axis.CLIENTS, Axis.REPEATS, Axis.ACTIONS, Axis.PARAMETERS)]
    outcomes: Annotated[Array, (Axis.CLIENTS, Axis.REPEATS, Axis.ACTIONS, Axis.PARAMETERS)]
    variances: Annotated[Array, (Axis.CLIENTS, Axis.REPEATS, Axis.ACTIONS)]
    supported: Annotated[Array, (Axis.CLIENTS, Axis.ACTIONS)]  # 0 where there is no model

    def fault_in(self, answer: ModelShifts, _study: Study, _n_rows: int) -> str | None:
        """One number of each kind for every client; estimates may be negative, variances not."""
        n_clients = len(self.propensities)
        numbers = {name: value for name, value in vars(answer).items() if np.ndim(value) == 1}
        if any(len(value) != n_clients for value in numbers.values()):
            return f"compared other models than those of {n_clients} clients"
        if not np.isin(answer.compared, (0.0, 1.0)).all():
            return "compared a part of a model"
        if any((value < 0).any() for name, value in numbers.items() if name.endswith("variance")):
            return "a variance is negative"
        return None


@message
class ClassifierSums(Message, code=79):
    """By target, means over training rows with σ = σ(θᵀx), or the share of held-out rows taken.

    A row is taken for the target's if θᵀx > 0. What was not asked for is zero.
    """

    released: Annotated[Array, (Axis.TARGETS,), PerClient]  # 0 where suppressed
    loss: Annotated[Array, (Axis.TARGETS,), PerClient]  # log(1 + exp(θᵀx))
    pulls: Annotated[Array, (Axis.TARGETS, Axis.PARAMETERS), PerClient]  # σ·x
    # σ(1 − σ)·xxᵀ
    hessian: Annotated[Array, (Axis.TARGETS, Axis.PARAMETERS, Axis.PARAMETERS), PerClient]
    target_share: Annotated[Array, (Axis.TARGETS,), PerClient]  # rounded by chance
    target_share_variance: Annotated[Array, (Axis.TARGETS,), PerClient]


@message
class ClassifyContexts(
    Query[ClassifierSums], code=15, asked=Asked.EACH, budget="classifier_queries"
):
    """Ask what these classifiers make of own contexts: one for each client to distinguish.

    On training rows for the next step of Newton's method, on held-out rows for its accuracy.
    Everybody is asked alike, whether a target or not.
    """

    title = "Whose contexts these are"
    content = "slopes of classifiers, and rounded shares"
    split: RowSplit
    parameters: Annotated[Array, (Axis.TARGETS, Axis.PARAMETERS)]

    def fault_in(self, answer: ClassifierSums, _study: Study, _n_rows: int) -> str | None:
        """Shares of rows and, on training rows, means: scaled ones would buy weight."""
        fault = _fault_in_shares(answer, len(self.parameters))
        if fault or self.split is RowSplit.EVALUATION:
            return fault
        return _fault_in_means(answer, self.parameters)


def _fault_in_shares(answer: ClassifierSums, n_targets: int) -> str | None:
    """Shares of rows; rounded up, all rows of a small client are a little more than all."""
    if any(len(value) != n_targets for value in vars(answer).values() if np.ndim(value)):
        return f"answers for other classifiers than {n_targets}"
    if not np.isin(answer.released, (0.0, 1.0)).all():
        return "tells a part of a classifier"
    shares, variances = answer.target_share, answer.target_share_variance
    if ((shares < 0) | (shares > MOST_BY_ROUNDING) | (variances < 0)).any():
        return "a share of rows is outside 0 to 1"
    return None


def _fault_in_means(answer: ClassifierSums, parameters: Array) -> str | None:
    """The mean of σ lies between 0 and 1, and that of σ(1 − σ) below its largest."""
    released = answer.released > 0
    chances, curvatures = answer.pulls[released, -1], answer.hessian[released, -1, -1]
    if (np.abs(chances - 0.5) > 0.5 + CORNER_TOLERANCE).any() or (answer.loss < 0).any():
        return "the mean chance of a classifier is outside 0 to 1"
    if (curvatures > chances * (1 - chances) + CORNER_TOLERANCE).any():
        return "the mean curvature of a classifier is above that of its mean chance"
    undecided = ~parameters[released].any(axis=1)
    if (np.abs(chances[undecided] - 0.5) > CORNER_TOLERANCE).any():
        return "the mean of one half is not one half"
    return fault_in_squares(answer.hessian)


@message
class ScoreMoments(Message, code=80):
    """Means of squared scores over training rows: of the largest in each row, and by action.

    The first of each is of max_a Γ̂(a)² over the scores a row has, the others of Γ̂(a)² over the
    rows that have it. What rests on too few rows is zero.
    """

    released: Annotated[Array, (Axis.MOMENTS,), PerClient]  # 0 where suppressed
    rows: Annotated[Array, (Axis.MOMENTS,), PerClient]
    degrees_of_freedom: Annotated[Array, (Axis.MOMENTS,), PerClient]
    means: Annotated[Array, (Axis.MOMENTS,), PerClient]
    variances: Annotated[Array, (Axis.MOMENTS,), PerClient]  # of the means


@message
class TellMoments(Query[ScoreMoments], code=16, asked=Asked.EACH, budget="model_queries"):
    """Ask how large scores are: what regret bounds call the variance of policies' values."""

    title = "How large scores are"
    content = "means of squared scores, and how precise they are"

    def fault_in(self, answer: ScoreMoments, _study: Study, _n_rows: int) -> str | None:
        """Means of squares; the largest square of a row is at least each action's."""
        if not np.isin(answer.released, (0.0, 1.0)).all():
            return "tells a part of a mean"
        counted = (answer.rows, answer.degrees_of_freedom)
        if any((part < 0).any() or (part % 1).any() for part in counted):
            return "a number of rows is not a whole number"
        if (answer.means < 0).any() or (answer.variances < 0).any():
            return "a mean of squares or a variance is negative"
        over_all = (answer.released > 0) & (answer.rows == answer.rows[0])
        largest = answer.means[0] * (1 + CELL_TOLERANCE)
        if answer.released[0] and (answer.means[over_all] > largest).any():
            return "an action's squares are larger than the largest"
        return None
