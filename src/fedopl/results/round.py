"""One exchange between server and clients, as a run records it."""

from dataclasses import dataclass, field


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
