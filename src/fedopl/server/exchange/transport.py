"""How the server reaches clients. An engine provides the transport; any engine will do."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol


class Transport(Protocol):
    """Sends bytes to clients by name, and yields their answers in any order."""

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of all clients that can be reached."""

    def exchange(self, queries: Mapping[str, bytes]) -> Iterable[tuple[str, bytes]]:
        """Send each client its query; yield (name, answer) for those that answer in time."""


@dataclass(frozen=True)
class AmongSources:
    """Reaches all clients, but lists only those with outcomes.

    Quorums and mixtures do not count the target, which has no outcomes.
    """

    whole: Transport
    target: str

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of all clients but the target."""
        return tuple(name for name in self.whole.clients if name != self.target)

    def exchange(self, queries: Mapping[str, bytes]) -> Iterable[tuple[str, bytes]]:
        """Send each client its query; the target is one of them."""
        return self.whole.exchange(queries)
