"""A client's own models of how actions were chosen and what came of them."""

from typing import Annotated

import numpy as np

from fedopl.messages.combining import PerClient
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.study.study import Study

# Models are fitted without each of so many parts of the rows, and from all of them.
N_PARTS = 5


@message
class Models(Message, code=77):
    """Own models: softmax scores of the actions, and rewards by action with their variances."""

    propensities: Annotated[Array, (Axis.REPEATS, Axis.ACTIONS, Axis.PARAMETERS), PerClient]
    outcomes: Annotated[Array, (Axis.REPEATS, Axis.ACTIONS, Axis.PARAMETERS), PerClient]
    variances: Annotated[Array, (Axis.REPEATS, Axis.ACTIONS), PerClient]  # of the residuals
    supported: Annotated[Array, (Axis.ACTIONS,), PerClient]  # 0 where too few took the action


@message
class TellModels(Query[Models], code=13, asked=Asked.EACH, budget="model_queries", fixed=True):
    """Ask how the actions were chosen and what came of them, as the client's own models say."""

    title = "What clients' models say"
    content = "how actions were chosen, and rewards by action"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Where the study asks whether joining pays."""
        return study.joining.diagnose

    def fault_in(self, answer: Models, _study: Study, _n_rows: int) -> str | None:
        """Some model at least, and rewards that vary about it."""
        if not np.isin(answer.supported, (0.0, 1.0)).all() or not answer.supported.any():
            return "supports no action, or a part of one"
        if (answer.variances < 0).any() or (answer.variances[:, answer.supported > 0] == 0).any():
            return "a variance is not above 0"
        return None
