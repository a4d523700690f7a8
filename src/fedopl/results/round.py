"""One exchange between server and clients, as a run records it, and a run so far."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

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


def in_a_row(parts: Iterable[Sequence[Round]]) -> tuple[Round, ...]:
    """The exchanges of several conversations, numbered one after the other."""
    found: list[Round] = []
    for rounds in parts:
        exchanges, trips = (found[-1].exchange + 1, found[-1].trip + 1) if found else (0, 0)
        found += [
            replace(one, exchange=one.exchange + exchanges, trip=one.trip + trips) for one in rounds
        ]
    return tuple(found)


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


@dataclass(frozen=True, kw_only=True)
class ClientSoFar:
    """What one client did."""

    last: Round | None  # the last exchange in which it was asked
    answers: int
    n_bytes: int


@dataclass
class SoFar:
    """Exchanges by their number; one that is told again came to more."""

    rounds: dict[int, Round] = field(default_factory=dict)

    def tell(self, latest: Round) -> None:
        """Take note of an exchange, or of what it came to."""
        self.rounds[latest.exchange] = latest

    def last(self, what: Literal["loss", "value"]) -> float | None:
        """The last that is known."""
        found = [getattr(one, what) for one in self.rounds.values()]
        return next((one for one in reversed(found) if one is not None), None)

    def client(self, name: str) -> ClientSoFar:
        """What this client did."""
        asked = [one for one in self.rounds.values() if name in one.asked]
        return ClientSoFar(
            last=asked[-1] if asked else None,
            answers=sum(name in one.answered for one in self.rounds.values()),
            n_bytes=sum(one.received.get(name, 0) for one in self.rounds.values()),
        )
