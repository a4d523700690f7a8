"""The stores of many clients in one process: bytes in one shared file, not in memory."""

import sys

import numpy as np

from fedopl.base.packed_arrays import PackedArrays, PackedPlace
from fedopl.client.disk.store import Arrays


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
