"""How the server reaches clients. An engine provides it; the server does not care which."""

from collections.abc import Iterable, Mapping
from typing import Protocol


class Transport(Protocol):
    """Carries bytes to clients by name and brings back what they answer, in any order."""

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of all clients that can be reached."""

    def exchange(self, queries: Mapping[str, bytes]) -> Iterable[tuple[str, bytes]]:
        """Send each client its query; yield (name, answer) for those that answer in time."""
