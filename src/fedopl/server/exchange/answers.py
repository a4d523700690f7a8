"""How the server reaches clients; the replies of one round trip, and the answers among them.

Replies are in a file: those of 100,000 clients may not fit in memory. A reply is read as an answer
to what was asked, in the study that was agreed to. Each answer is in memory, or is read from a file
when used.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import IO, Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np

from fedopl.base.arrays import largest_size, perhaps_beyond
from fedopl.base.errors import WireError
from fedopl.base.packed_arrays import PackedArrays, PackedPlace
from fedopl.messages import codec
from fedopl.messages.about_masks import MaskedSums, is_masked
from fedopl.messages.bundle import slices_of, unheaded
from fedopl.messages.codec import ARRAYS, FIELDS
from fedopl.messages.derived_sizes import decoder_of
from fedopl.messages.message import Message, Query, own_fields
from fedopl.messages.refusal import Refusal
from fedopl.study.study import Study


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


Answer = TypeVar("Answer", bound=Message)
Held = TypeVar("Held")
Made = TypeVar("Made")


class Answers(Mapping[str, Held]):
    """Answers by client, or what is made of them, in sorted order, and the exchange they belong to.

    If only a total is needed, answers stay in the file of replies and are read when they are used.
    So memory does not grow with the number of clients.
    """

    def __init__(self, exchange: int, held: Mapping[str, Held | Callable[[], Held]]) -> None:
        self.exchange, self._held = exchange, dict(held)

    def __getitem__(self, name: str) -> Held:
        held = self._held[name]
        return held() if callable(held) else held

    def __contains__(self, name: object) -> bool:
        return name in self._held  # no answer is read for it

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def each(self, function: Callable[[Held], Made]) -> "Answers[Made]":
        """What a function makes of every answer: of one in a file, whenever it is read."""

        def read(held: Callable[[], Held]) -> Made:
            return function(held())

        made = {
            n: partial(read, own) if callable(own) else function(own)
            for n, own in self._held.items()
        }
        return Answers(self.exchange, made)

    def without(self, names: Mapping[str, str]) -> "Answers[Held]":
        """The answers of all but these clients."""
        kept = {name: held for name, held in self._held.items() if name not in names}
        return Answers(self.exchange, kept)


# The first answers stay in memory, up to this many bytes: a server reads each about ten times.
MOST_BYTES_KEPT = 1 << 26
BYTES_OF_MESSAGE = 1 << 10  # without its numbers


class KeptMessages:
    """The answers of one exchange, as numbers that were checked already."""

    def __init__(self, study: bytes, exchange: int) -> None:
        self._stamp: dict[str, Any] = {"study": study, "exchange": exchange}
        self._file = PackedArrays()
        self._bytes_in_memory = 0

    def keeping(self, message: Answer) -> Answer | Callable[[], Answer]:
        """The answer, if it stays in memory; otherwise a function that reads it from the file."""
        arrays = (getattr(message, name) for name in ARRAYS[type(message)])
        n_bytes = BYTES_OF_MESSAGE + sum(array.nbytes for array in arrays)
        if self._bytes_in_memory + n_bytes <= MOST_BYTES_KEPT:
            self._bytes_in_memory += n_bytes
            return message
        numbers = {
            name: np.asarray(getattr(value := getattr(message, name), "value", value))
            for name in own_fields(type(message))
        }
        return partial(self._read, type(message), self._file.put(numbers))

    def _read(self, kind: type[Answer], place: PackedPlace) -> Answer:
        found = self._file.get(place)
        values: dict[str, Any] = {}
        for name, form in FIELDS[kind]:
            if name in found:
                array = found[name]
                values[name] = array if isinstance(form, tuple) else form(array.item())
        return kind(**self._stamp, **values)


# Larger numbers than this cannot be squared and added up.
LARGEST_NUMBER = 1e100


class AnswerReader:
    """Reads the replies of one study's clients."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self._decoder, self._digest = decoder_of(study), study.digest

    def read(self, query: Query[Answer], content: bytes) -> Answer | Refusal:
        """The answer, or the refusal; an error if it is neither of this question."""
        message = self._decoder.decode(content)
        if message.study != self._digest:
            raise WireError("answers for another study")
        if isinstance(message, Refusal):
            return message
        _check_size(message)
        if message.exchange != query.exchange:
            raise WireError(f"answers exchange {message.exchange}, this is {query.exchange}")
        if type(message) is not (MaskedSums if is_masked(query, self.study) else query.answer):
            raise WireError(f"answers with {type(message).__name__}")
        return cast(Answer, message)

    def again(self, content: bytes) -> Any:
        """An answer that was read before and not kept."""
        return self._decoder.decode(content)


def _check_size(message: Message) -> None:
    names, held = codec.ARRAYS[type(message)], vars(message)
    if not perhaps_beyond([held[name] for name in names], LARGEST_NUMBER):
        return
    for name in names:
        largest = largest_size(held[name])
        if largest > LARGEST_NUMBER:
            raise WireError(f"{name}: a number as large as {largest:.0e} cannot be added up")
