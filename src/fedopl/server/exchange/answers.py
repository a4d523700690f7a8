"""The clients' answers to one query: how they are read, and held.

A reply is read as an answer to what was asked, in the study that was agreed to. Each answer is in
memory, or is read from a file when used.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np

from fedopl.base.arrays import largest_size, perhaps_beyond
from fedopl.base.errors import WireError
from fedopl.base.packed_arrays import PackedArrays, PackedPlace
from fedopl.messages import codec
from fedopl.messages.about_masks import MaskedSums, is_masked
from fedopl.messages.codec import ARRAYS, FIELDS
from fedopl.messages.derived_sizes import decoder_of
from fedopl.messages.message import Message, Query, own_fields
from fedopl.messages.refusal import Refusal
from fedopl.study.study import Study

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
        for name, field in FIELDS[kind]:
            if name in found:
                array = found[name]
                values[name] = array if isinstance(field, tuple) else field(array.item())
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
