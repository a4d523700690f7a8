"""A client's own models of how actions were chosen, and of outcomes."""

from typing import Annotated

import numpy as np

from fedopl.messages.combining import PerClient
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.study.study import Study

# Models are fitted without each of this many parts of the rows, and from all of them.
N_PARTS = 5


@message
class Models(Message, code=77):
    """A client's own models: softmax scores of actions, and rewards by action with variances."""

    propensities: Annotated[Array, (Axis.REPEATS, Axis.ACTIONS, Axis.PARAMETERS), PerClient]
    outcomes: Annotated[Array, (Axis.REPEATS, Axis.ACTIONS, Axis.PARAMETERS), PerClient]
    variances: Annotated[Array, (Axis.REPEATS, Axis.ACTIONS), PerClient]  # of the residuals
    supported: Annotated[Array, (Axis.ACTIONS,), PerClient]  # 0 where too few took the action


@message
class TellModels(Query[Models], code=13, asked=Asked.EACH):
    """Ask for the client's own models of how actions were chosen, and of outcomes."""

    title = "What clients' models say"
    content = "how actions were chosen, and rewards by action"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether the study asks if joining pays."""
        return study.joining.diagnose

    def fault_in(self, answer: Models, _study: Study, _n_rows: int) -> str | None:
        """Check that there is some model, and that rewards vary about it."""
        if not np.isin(answer.supported, (0.0, 1.0)).all() or not answer.supported.any():
            return "supports no action, or a part of one"
        if (answer.variances < 0).any() or (answer.variances[:, answer.supported > 0] == 0).any():
            return "a variance is not above 0"
        return None
