"""Storage for very many small bundles of arrays: one file for the numbers, each layout kept once.

A layout is the names, types and shapes of the arrays in a bundle.
"""

import weakref
from collections.abc import Mapping
from tempfile import SpooledTemporaryFile
from threading import Lock
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

# Bytes that are kept in memory; the file goes to disk once it is larger.
MOST_UNWRITTEN = 1 << 26
_ALIGNED = 8

PackedPlace = tuple[int, int]  # where a bundle begins in the file, and how long it is
# Name, type and shape of an array, how many numbers it has, and where it begins in a bundle.
_Array = tuple[str, Any, tuple[int, ...], int, int]


class PackedArrays:
    """A temporary file of bundles of arrays. It only grows; it is deleted with this object."""

    def __init__(self) -> None:
        self._file: IO[bytes] = SpooledTemporaryFile(max_size=MOST_UNWRITTEN)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._end, self._lock = 0, Lock()
        self._forms: list[list[_Array]] = []
        self._places: dict[tuple[Any, ...], int] = {}

    def put(self, arrays: Mapping[str, NDArray[Any]]) -> PackedPlace:
        """Append these arrays to the file; return their place."""
        form = tuple((name, array.dtype, array.shape) for name, array in arrays.items())
        with self._lock:
            number = self._number_of(form)
            parts = [number.to_bytes(_ALIGNED, "little")]
            for array in arrays.values():
                content = array.tobytes()
                parts.append(content)
                if left := -len(content) % _ALIGNED:
                    parts.append(b"\0" * left)
            whole = b"".join(parts)
            self._file.seek(self._end)
            self._file.write(whole)
            place = self._end, len(whole)
            self._end += len(whole)
        return place

    def get(self, place: PackedPlace) -> dict[str, NDArray[Any]]:
        """The arrays at this place, as new copies."""
        start, size = place
        with self._lock:
            self._file.seek(start)
            content = bytearray(self._file.read(size))
        return {
            name: np.frombuffer(content, kind, count, begins).reshape(shape)
            for name, kind, shape, count, begins in self._forms[
                int.from_bytes(content[:_ALIGNED], "little")
            ]
        }

    def _number_of(self, form: tuple[Any, ...]) -> int:
        if form not in self._places:
            arrays, begins = [], _ALIGNED
            for name, kind, shape in form:
                count = int(np.prod(shape, dtype=np.int64))
                size = count * kind.itemsize
                arrays.append((name, kind, shape, count, begins))
                begins += size + -size % _ALIGNED
            self._places[form] = len(self._forms)
            self._forms.append(arrays)
        return self._places[form]
