"""One exchange between server and clients, as a run records it."""

from dataclasses import dataclass, field
from typing import Any

from fedopl.base.tables import RowTable


@dataclass(frozen=True, kw_only=True)
class Round:
    """One query, the clients that were asked, and their replies."""

    exchange: int
    trip: int  # exchanges of the same trip travelled together
    query: str  # the message's type
    asked: tuple[str, ...]
    answered: tuple[str, ...]
    refused: dict[str, str]  # client → code
    rejected: dict[str, str]  # client → what was wrong with its answer
    silent: tuple[str, ...]
    bytes_sent: int
    received: dict[str, int]  # client → bytes
    loss: float | None = None  # the oracle's objective after this round, where it has one
    value: float | None = None  # the policy's estimated value, where it was asked for
    # client → at least how many entries its ledger lacks that it had at an earlier trip
    went_back: dict[str, int] = field(default_factory=dict)

    @property
    def bytes_received(self) -> int:
        """The bytes from all clients together."""
        return sum(self.received.values())


class RoundTable(RowTable[Round]):
    """Every exchange of a run, as a tuple of rounds; `print` it. Frames have counts of clients."""

    columns = (
        *("exchange", "trip", "query", "asked", "answered", "refused", "rejected", "silent"),
        *("bytes_sent", "bytes_received", "loss", "value"),
    )

    def column(self, name: str) -> list[Any]:
        """What every exchange says under this name; of clients, how many."""
        found = super().column(name)
        return [len(one) if isinstance(one, tuple | dict) else one for one in found]

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        rows = [
            [
                f"{one.exchange}",
                one.query,
                f"{len(one.answered)} of {len(one.asked)}",
                f"{one.bytes_sent:,}",
                f"{one.bytes_received:,}",
            ]
            for one in self
        ]
        return ["exchange", "query", "answered", "bytes sent", "bytes received"], rows
