"""What a run came to so far, for whoever watches: its exchanges, and what clients did in them."""

from dataclasses import dataclass, field

from fedopl.results.round import Round


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

    @property
    def loss(self) -> float | None:
        """The last that is known."""
        found = [one.loss for one in self.rounds.values() if one.loss is not None]
        return found[-1] if found else None

    @property
    def value(self) -> float | None:
        """The last that is known."""
        found = [one.value for one in self.rounds.values() if one.value is not None]
        return found[-1] if found else None

    def client(self, name: str) -> ClientSoFar:
        """What this client did."""
        asked = [one for one in self.rounds.values() if name in one.asked]
        return ClientSoFar(
            last=asked[-1] if asked else None,
            answers=sum(name in one.answered for one in self.rounds.values()),
            n_bytes=sum(one.received.get(name, 0) for one in self.rounds.values()),
        )
