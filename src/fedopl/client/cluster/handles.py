"""Tasks as bytes, in which files stand for rows: a worker opens them by itself.

Classes that hold rows refuse to be pickled. Of rows on disk, where the files are is written in
their place; rows in memory are refused as everywhere. Needs the `dask` or the `spark` extra.
"""

import io
import pickle
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fedopl.client.disk.disk_array import DiskArray
from fedopl.client.disk.passes import Partition
from fedopl.client.table.logged_data import ROW_ARRAYS, LoggedData, trusted


def task_bytes(task: Callable[[Partition], object]) -> bytes:
    """The task, with paths of files in place of rows on disk."""
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, held: object) -> Any:
            if isinstance(held, DiskArray):
                place = held.path.absolute(), held.shape, held.stored.str, held.digest
                return _opened, place
            if isinstance(held, LoggedData) and held.is_on_disk:
                arrays = {name: getattr(held, name) for name in ROW_ARRAYS}
                names = held.action_names, held.feature_names, None, held.outcome_names
                return trusted, (arrays, *names)
            return super().reducer_override(held)

    content = io.BytesIO()
    Pickler(content).dump(task)
    return content.getvalue()


def computed(task: bytes, partition: Partition) -> object:
    """What a worker answers: numbers of the size of sums, whatever the number of rows."""
    return _task(task)(partition)


def answer_bytes(task: Callable[[Partition], object], partition: Partition) -> bytes:
    """The same as bytes; an error of the task is an answer too, to be raised by the client."""
    try:
        return pickle.dumps((task(partition), None))
    except Exception as error:
        return pickle.dumps((None, error))


def answered(content: bytes) -> Any:
    """What a worker of the client's own answered with these bytes."""
    found, error = pickle.loads(content)  # noqa: S301
    if error is not None:
        raise error
    return found


@lru_cache(4)
def _task(content: bytes) -> Callable[[Partition], object]:
    """The task that these bytes are; they come from the client's own process."""
    task: Callable[[Partition], object] = pickle.loads(content)  # noqa: S301
    return task


def _opened(path: Path, shape: tuple[int, ...], stored: str, digest: str = "") -> DiskArray:
    return DiskArray(path, shape, np.dtype(stored), digest)
