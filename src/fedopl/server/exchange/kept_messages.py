"""Checked answers of very many clients, kept in a file and read one at a time."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fedopl.base.packed_arrays import PackedArrays, PackedPlace
from fedopl.messages.codec import FIELDS
from fedopl.messages.message import Message
from fedopl.server.exchange.answers import Answer


class KeptMessages:
    """The answers of one exchange, as numbers that were checked already."""

    def __init__(self, study: bytes, exchange: int) -> None:
        self._stamp: dict[str, Any] = {"study": study, "exchange": exchange}
        self._file = PackedArrays()

    def keeping(self, message: Answer) -> Callable[[], Answer]:
        """Keep this answer in the file; return a function that reads it."""
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
