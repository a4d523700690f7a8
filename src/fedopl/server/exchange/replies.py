"""The replies of one round trip, in a file: those of 100,000 clients may not fit in memory."""

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile
from typing import IO, NamedTuple

from fedopl.base.errors import WireError
from fedopl.messages.bundle import slices_of, unheaded

# Smaller trips never touch the disk.
MOST_IN_MEMORY = 1 << 26


class Place(NamedTuple):
    """Where a client's reply is in the file."""

    name: str
    start: int
    size: int


@dataclass(frozen=True)
class Replies:
    """A file of replies, read one at a time, by name. So the order of arrival does not matter."""

    file: IO[bytes]
    places: tuple[Place, ...]
    heads: dict[str, int] = field(default_factory=dict)  # entries of clients' ledgers, where said

    @classmethod
    def arriving(cls, replies: Iterable[tuple[str, bytes]]) -> "Replies":
        """Write replies to the file as they arrive, without their envelopes."""
        file: IO[bytes] = SpooledTemporaryFile(max_size=MOST_IN_MEMORY)  # noqa: SIM115
        places, start, heads = [], 0, dict[str, int]()
        for name, reply in replies:
            content, n_entries = unheaded(reply)
            if n_entries is not None:
                heads[name] = max(n_entries, heads.get(name, 0))
            file.write(content)
            places.append(Place(name, start, len(content)))
            start += len(content)
        times = Counter(place.name for place in places)
        # Several replies with the same name are sorted by their bytes.
        ordered = sorted(
            places,
            key=lambda place: (place.name, _read(file, place) if times[place.name] > 1 else b""),
        )
        return cls(file, tuple(ordered), heads)

    def __post_init__(self) -> None:
        weakref.finalize(self, self.file.close)

    def times(self) -> Counter[str]:
        """How often each client replied."""
        return Counter(place.name for place in self.places)

    def read(self, place: Place) -> bytes:
        """One reply."""
        return _read(self.file, place)

    def __iter__(self) -> Iterator[tuple[Place, bytes]]:
        return ((place, self.read(place)) for place in self.places)


@dataclass(frozen=True)
class ReplyPart:
    """The replies to one of the questions that were asked together."""

    whole: Replies
    place: int
    n_questions: int

    def read(self, place: Place) -> bytes:
        """One reply to this question."""
        return self._of(self.whole.read(place))

    def __iter__(self) -> Iterator[tuple[Place, bytes]]:
        return ((place, self._of(content)) for place, content in self.whole)

    def _of(self, content: bytes) -> bytes:
        """What cannot be taken apart answers none of the questions."""
        try:
            parts = slices_of(content)
        except WireError:
            return b""
        return content[parts[self.place]] if len(parts) == self.n_questions else b""


def _read(file: IO[bytes], place: Place) -> bytes:
    file.seek(place.start)
    return file.read(place.size)
