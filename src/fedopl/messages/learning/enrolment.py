"""Enrolment: whether a client takes part, and with how many rows."""

from typing import Annotated

from fedopl.messages.combining import PerClient
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.plausibility import SLACK
from fedopl.messages.sensitivity import UNMOVED
from fedopl.study.study import Study


@message
class Enrolment(Message, code=128):
    """A client takes part, with this many rows to learn from."""

    n_rows: Annotated[int, UNMOVED, PerClient]
    # With differential privacy, clients report no counts, and all are 0.
    rows_per_action: Annotated[Array, (Axis.ACTIONS,), UNMOVED, PerClient]
    clipped: Annotated[int, UNMOVED, PerClient] = 0  # numbers beyond the study's ranges


@message
class Enrol(Query[Enrolment], code=1, asked=Asked.EACH):
    """Ask whether a client takes part, and with how many rows."""

    title = "Who takes part"
    content = "how many rows there are, and how many took each action"

    @classmethod
    def content_in(cls, study: Study) -> str:
        """How many rows there are; with differential privacy, no more than that."""
        return "how many rows there are" if study.privacy else cls.content

    @classmethod
    def left_out_in(cls, study: Study) -> frozenset[str]:
        """Counts by action, with differential privacy."""
        return frozenset({"rows_per_action"} if study.privacy else ())

    def fault_in(self, answer: Enrolment, _study: Study, _n_rows: int) -> str | None:
        """Check that a client has rows, as many as took any action; counts of 0 may be hidden."""
        counts: list[float] = answer.rows_per_action.tolist()  # few: faster than as an array
        if answer.clipped < 0:
            return "clipped fewer numbers than none"
        if answer.n_rows <= 0:
            return "enrolled without a row"
        if not all(count >= 0 and count.is_integer() for count in counts):
            return "a count of an action is not a whole number of rows"
        total = sum(counts)
        apart = total - answer.n_rows
        if apart > SLACK * len(counts) or (all(counts) and -apart > SLACK * len(counts)):
            return f"enrolled with {answer.n_rows:,} rows, of which {total:,.0f} took actions"
        return None
