"""The total weight of a client's rows, if clients count by it."""

from typing import Annotated

from fedopl.messages.combining import PerClient
from fedopl.messages.learning.outcome_sums import OutcomeSums
from fedopl.messages.message import Asked, Message, Query, message
from fedopl.messages.plausibility import CELL_TOLERANCE
from fedopl.study.study import Study


@message
class TotalWeight(Message, code=84):
    """Σ w over the rows to learn from."""

    weight: Annotated[float, PerClient]

    def contradiction(self, sums: OutcomeSums) -> str | None:
        """Why a client with these sums of its rows cannot have this total."""
        by_cell = sums.sums[..., -2, -2]
        released = float(by_cell.sum())
        # Cells that are 0 may be left out, so sums may cover less than all rows.
        too_much = bool(by_cell.all()) and self.weight > (1 + CELL_TOLERANCE) * released
        if too_much or released > (1 + CELL_TOLERANCE) * self.weight:
            return f"its rows weigh {self.weight:,.4g} together, in its sums {released:,.4g}"
        return None


@message
class TellWeight(Query[TotalWeight], code=22, asked=Asked.EACH):
    """Ask for the total weight of the rows to learn from."""

    title = "What rows weigh"
    content = "the sum of the row weights"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether clients count by weight."""
        return study.mixture.counts_weight

    def fault_in(self, answer: TotalWeight, _study: Study, _n_rows: int) -> str | None:
        """Check that rows that count have a weight."""
        return None if answer.weight > 0 else "its rows weigh nothing together"
