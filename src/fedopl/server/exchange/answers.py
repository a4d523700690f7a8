"""The clients' answers to one query; each is in memory, or is read from a file when used."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from fedopl.messages.message import Message

Answer = TypeVar("Answer", bound=Message)


class Answers(Mapping[str, Answer]):
    """Answers by client, in sorted order, and the exchange they belong to.

    If only a total is needed, answers stay in the file of replies and are read when they are used.
    So memory does not grow with the number of clients.
    """

    def __init__(self, exchange: int, held: Mapping[str, Answer | Callable[[], Answer]]) -> None:
        self.exchange, self._held = exchange, dict(held)

    def __getitem__(self, name: str) -> Answer:
        held = self._held[name]
        return held if isinstance(held, Message) else held()

    def __contains__(self, name: object) -> bool:
        return name in self._held  # no answer is read for it

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def without(self, names: Mapping[str, str]) -> "Answers[Answer]":
        """The answers of all but these clients."""
        kept = {name: held for name, held in self._held.items() if name not in names}
        return Answers(self.exchange, kept)
