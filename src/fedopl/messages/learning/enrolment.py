"""Enrolment: whether a client takes part, and with how many rows."""

from typing import Annotated

from fedopl.messages.combining import PerClient
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.study.study import Study


@message
class Enrolment(Message, code=65):
    """Yes, with this many rows to learn from."""

    n_rows: Annotated[int, PerClient]
    rows_per_action: Annotated[Array, (Axis.ACTIONS,), PerClient]


@message
class Enrol(Query[Enrolment], code=1, asked=Asked.EACH):
    """Ask whether a client takes part, and with how many rows."""

    title = "Who takes part"
    content = "how many rows there are, and how many took each action"

    def fault_in(self, answer: Enrolment, _study: Study, _n_rows: int) -> str | None:
        """Who takes part has rows."""
        return None if answer.n_rows > 0 else "enrolled without a row"
