"""Every client's own models, and how far all clients' models are from them at its contexts."""

from typing import Annotated

import numpy as np

from fedopl.messages.combining import PerClient
from fedopl.messages.message import AnswerType, Array, Asked, Axis, Message, Query, message
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
