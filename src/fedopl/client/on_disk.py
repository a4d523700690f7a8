"""Arrays in files: read a slice at a time, so that memory does not grow with the rows."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

# Numbers that are kept with half their digits are used with all of them.
WIDER = {np.dtype(np.float32): np.dtype(np.float64)}


@dataclass(frozen=True, eq=False)
class DiskArray:
    """An array in a file of its own; `array[start:stop]` reads these rows and no others."""

    path: Path
    shape: tuple[int, ...]
    stored: np.dtype[Any]

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of what is read."""
        return WIDER.get(self.stored, self.stored)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise IndexError("an array on disk is read in the order of its rows")
        shape = (max(stop - start, 0), *self.shape[1:])
        found = np.empty(shape, self.stored)
        width = self.stored.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))
        with self.path.open("rb", buffering=0) as file:
            file.seek(start * width)
            _fill(file, memoryview(found).cast("B") if found.size else memoryview(b""))
        return found.astype(self.dtype, copy=False)


def _fill(file: Any, into: memoryview) -> None:
    """Read until it is full; a read may bring less than was asked for."""
    done = 0
    while done < len(into):
        read = file.readinto(into[done:])
        if not read:
            raise OSError("a file of rows is shorter than it was")
        done += read


class DiskWriter:
    """Writes an array to a file, some rows after the others."""

    def __init__(self, path: Path, width: tuple[int, ...], stored: DTypeLike) -> None:
        self._path, self._width, self._stored = path, width, np.dtype(stored)
        self._n_rows = 0
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._file = os.fdopen(descriptor, "wb", buffering=0)

    def append(self, rows: NDArray[Any]) -> None:
        """Write these rows behind those before."""
        if rows.shape[1:] != self._width:
            raise ValueError(f"expected rows of shape {self._width}, came {rows.shape[1:]}")
        content = np.ascontiguousarray(rows, self._stored)
        if content.size:
            self._file.write(memoryview(content).cast("B"))
        self._n_rows += len(rows)

    def finished(self) -> DiskArray:
        """The array, once all rows are written."""
        self._file.close()
        return DiskArray(self._path, (self._n_rows, *self._width), self._stored)


def filled(path: Path, shape: tuple[int, ...], stored: DTypeLike) -> np.memmap[Any, Any]:
    """A file of this size, to be written to in any order."""
    return np.memmap(path, dtype=stored, mode="w+", shape=shape)
