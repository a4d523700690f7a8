"""A client's private store: arrays derived from its rows, kept for the next process."""

import hashlib
import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fedopl.base.errors import StorageError
from fedopl.base.files import flush_folder, owner_only, refuse_link, write_atomically
from fedopl.base.packed_arrays import PackedArrays, PackedPlace

Arrays = dict[str, NDArray[Any]]


class Store(Protocol):
    """Named bundles of arrays."""

    @property
    def is_lasting(self) -> bool:
        """Whether it outlives the process, and perhaps the rows."""

    def get(self, key: str) -> Arrays | None:
        """The arrays stored under this key, None if there are none."""

    def put(self, key: str, arrays: Arrays) -> None:
        """Store these arrays."""

    def has(self, key: str) -> bool:
        """Whether arrays are stored under this key, even if they are damaged."""


class MemoryStore(dict[str, Arrays]):
    """A store that lives as long as the process."""

    is_lasting = False
    put = dict.__setitem__
    has = dict.__contains__


@dataclass(frozen=True)
class FolderStore:
    """A store of .npz files that only their owner can read; nothing in it is ever unpickled."""

    folder: Path
    is_lasting: ClassVar[bool] = True

    def get(self, key: str) -> Arrays | None:
        """The arrays under this key; a damaged file counts as none, a link is an error."""
        refuse_link(self.folder)
        try:
            # A pickle could run code of the person who wrote the file.
            with (
                open(self._path(key), "rb", opener=owner_only) as file,
                np.load(file, allow_pickle=False) as bundle,
            ):
                return {name: bundle[name] for name in bundle.files}
        except StorageError:
            raise
        except Exception:  # damaged files fail in many ways
            return None

    def put(self, key: str, arrays: Arrays) -> None:
        """Store these arrays."""
        refuse_link(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        content = io.BytesIO()
        np.savez(content, **arrays)  # type: ignore[arg-type]
        write_atomically(self._path(key), content.getvalue(), mode=0o600)
        flush_folder(self.folder)  # before anything leaves that follows from what is stored

    def has(self, key: str) -> bool:
        """Whether there is a file for this key, damaged or not."""
        refuse_link(self.folder)
        return self._path(key).exists()

    def _path(self, key: str) -> Path:
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npz"


class PackedStore:
    """One client's store in a file that many share; it does not outlive the process."""

    is_lasting = False

    def __init__(self, file: PackedArrays) -> None:
        self._file = file
        self._places: dict[str, PackedPlace] = {}

    def get(self, key: str) -> Arrays | None:
        """The arrays stored under this key, None if there are none."""
        place = self._places.get(key)
        return None if place is None else self._file.get(place)

    def put(self, key: str, arrays: Arrays) -> None:
        """Store these arrays."""
        held = {name: np.asarray(array) for name, array in arrays.items()}
        # The keys are the same for all clients of a study.
        self._places[sys.intern(key)] = self._file.put(held)

    def has(self, key: str) -> bool:
        """Whether arrays are stored under this key."""
        return key in self._places
