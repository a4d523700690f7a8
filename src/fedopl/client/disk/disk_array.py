"""Arrays in files that are read a slice at a time, so that memory does not grow with the rows."""

import contextlib
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray

from fedopl.base.errors import DataError, StorageError, refuse_to_leave
from fedopl.base.files import writing_to

# Files may hold float32 to save space; computations are in float64.
WIDER = {np.dtype(np.float32): np.dtype(np.float64)}
# Large enough that opening the file takes little time compared with reading it.
ROWS_PER_SLICE = 1 << 16
# Unfinished files that were not touched for this long were left by a killed process.
ABANDONED_SECONDS = 3600


@dataclass(frozen=True, eq=False)
class DiskArray(NDArrayOperatorsMixin):
    """An array in a file of its own; `array[start:stop]` reads these rows and no others.

    It takes the place of a numpy array. An operation that needs all of its rows at once is refused.
    """

    path: Path
    shape: tuple[int, ...]
    stored: np.dtype[Any]
    digest: str = ""  # of the file's bytes, if it was computed while writing

    __reduce_ex__ = refuse_to_leave

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type that slices have."""
        return WIDER.get(self.stored, self.stored)

    @property
    def n_bytes(self) -> int:
        """The size that the file should have."""
        return self.stored.itemsize * int(np.prod(self.shape, dtype=np.int64))

    def is_complete(self) -> bool:
        """Whether the file is there and has the size it should."""
        try:
            return self.path.stat().st_size == self.n_bytes
        except OSError:
            return False

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        if not isinstance(rows, slice):
            self._refuse()
        start, stop, step = rows.indices(len(self))
        if step != 1:
            self._refuse()
        found = np.empty((max(stop - start, 0), *self.shape[1:]), self.stored)
        into = found.reshape(-1).view(np.uint8).data
        try:
            # Buffered, because a single read of the raw file may return less than was asked for.
            with self.path.open("rb") as file:
                file.seek(start * self.stored.itemsize * int(np.prod(self.shape[1:])))
                n_read = file.readinto(into)
        except OSError as error:
            raise StorageError(f"{self.path}: {error.strerror or error}; start again") from None
        if n_read < len(into):
            raise StorageError(f"{self.path}: the file of rows is shorter than it was; start again")
        return found.astype(self.dtype, copy=False)

    def rows_at(self, places: NDArray[np.int64]) -> NDArray[Any]:
        """The rows at these places (n_places,), read in the order of the file."""
        found = np.empty((len(places), *self.shape[1:]), self.stored)
        width = self.stored.itemsize * int(np.prod(self.shape[1:]))
        into = found.reshape(len(places), -1).view(np.uint8)
        try:
            # Unbuffered: the wanted rows rarely lie beside each other.
            with self.path.open("rb", buffering=0) as file:
                for row in np.argsort(places, kind="stable"):
                    file.seek(int(places[row]) * width)
                    if file.readinto(into[row].data) != width:
                        raise StorageError(f"{self.path}: cannot be read; start again")
        except OSError as error:
            raise StorageError(f"{self.path}: {error.strerror or error}; start again") from None
        return found.astype(self.dtype, copy=False)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise DataError(
            f"{self.path.name}: these rows are on disk and can only be read a slice at a time; "
            "for this, read the table into memory"
        )

    __array__ = __array_ufunc__ = __array_function__ = __iter__ = _refuse

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):  # numpy and copy probe for protocols
            raise AttributeError(name)
        self._refuse()


class DiskWriter:
    """Writes an array to a file that only its owner can read, a few rows at a time."""

    def __init__(self, path: Path, width: tuple[int, ...], stored: DTypeLike) -> None:
        self._path, self._width, self._stored = path, width, np.dtype(stored)
        # SHA-256: processors have instructions for it.
        self._n_rows, self._digest = 0, hashlib.sha256()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._file = os.fdopen(descriptor, "wb", buffering=0)

    def append(self, rows: NDArray[Any]) -> None:
        """Append these rows."""
        if rows.shape[1:] != self._width:
            raise ValueError(f"expected rows of shape {self._width}, came {rows.shape[1:]}")
        numbers, done = np.ascontiguousarray(rows, self._stored), 0
        content = numbers.reshape(-1).view(np.uint8).data if numbers.size else b""
        self._digest.update(content)
        with writing_to(self._path):
            while done < len(content):
                done += self._file.write(content[done:]) or 0
        self._n_rows += len(rows)

    def finished(self) -> DiskArray:
        """The array, flushed to the disk."""
        # Before the file is renamed: a crash must not leave half a file under a complete name.
        os.fsync(self._file.fileno())
        self._file.close()
        shape = (self._n_rows, *self._width)
        return DiskArray(self._path, shape, self._stored, self._digest.hexdigest()[:32])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def slices(n_rows: int, size: int = ROWS_PER_SLICE) -> Iterator[slice]:
    """Consecutive slices that cover all rows."""
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def cached_array(
    path: Path, n_rows: int, stored: DTypeLike, parts: Iterable[NDArray[Any]]
) -> DiskArray:
    """The array in this file; if it is not complete, it is written from its parts.

    It is written to another file, which is then renamed. So no process ever sees half of it.
    """
    array = DiskArray(path, (n_rows,), np.dtype(stored))
    if array.is_complete():
        return array
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with DiskWriter(beside, (), stored) as writer:
            for part in parts:
                writer.append(part)
            writer.finished()
        beside.replace(path)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        beside.unlink(missing_ok=True)
    return array


def remove_abandoned(folder: Path, prefix: str) -> None:
    """Remove folders with this prefix that a killed process left behind."""
    for left in folder.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            newest = max(path.stat().st_mtime for path in [left, *left.rglob("*")])
            if time.time() - newest > ABANDONED_SECONDS:
                shutil.rmtree(left)


def check_space(folder: Path, needed: int, what: str) -> None:
    """Raise an error before writing more than the disk can hold."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise StorageError(
            f"{folder}: {what} needs {needed:,} bytes of disk, {free:,} are free; make room, or "
            "name a folder on another disk"
        )
