"""Enrolment: whether a client takes part, and with how many rows."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedopl.messages.combining import PerClient
from fedopl.messages.message import Array, Asked, Axis, Message, Query
from fedopl.study.study import Study


@dataclass(frozen=True, eq=False, kw_only=True)
class Enrolment(Message):
    """Yes, with this many rows to learn from."""

    code: ClassVar[int] = 65
    n_rows: Annotated[int, PerClient()]
    rows_per_action: Annotated[Array, (Axis.ACTIONS,), PerClient()]


@dataclass(frozen=True, eq=False, kw_only=True)
class Enrol(Query[Enrolment]):
    """Ask whether a client takes part, and with how many rows."""

    code: ClassVar[int] = 1
    answer: ClassVar[type[Message]] = Enrolment
    asked: ClassVar[Asked] = Asked.EACH
    title: ClassVar[str] = "Who takes part"
    content: ClassVar[str] = "how many rows there are, and how many took each action"

    def fault_in(self, answer: Enrolment, _study: Study, _n_rows: int) -> str | None:
        """Who takes part has rows."""
        return None if answer.n_rows > 0 else "enrolled without a row"
