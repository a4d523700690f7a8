"""How the server reaches clients. An engine provides it; the server does not care which."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol


class Transport(Protocol):
    """Carries bytes to clients by name and brings back what they answer, in any order."""

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of all clients that can be reached."""

    def exchange(self, queries: Mapping[str, bytes]) -> Iterable[tuple[str, bytes]]:
        """Send each client its query; yield (name, answer) for those that answer in time."""


@dataclass(frozen=True)
class AmongSources:
    """Reaches all, and counts those alone who have outcomes: quorums and mixtures are of them."""

    whole: Transport
    target: str

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of all clients but the target."""
        return tuple(name for name in self.whole.clients if name != self.target)

    def exchange(self, queries: Mapping[str, bytes]) -> Iterable[tuple[str, bytes]]:
        """Send each client its query, the target among them."""
        return self.whole.exchange(queries)
