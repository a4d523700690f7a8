"""Checked answers of very many clients: some in memory, others in a file and read when used."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fedopl.base.packed_arrays import PackedArrays, PackedPlace
from fedopl.messages.codec import ARRAYS, FIELDS
from fedopl.messages.message import Message
from fedopl.server.exchange.answers import Answer

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
            for name, _ in FIELDS[type(message)]
            if name not in Message.__dataclass_fields__
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
