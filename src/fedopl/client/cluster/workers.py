"""What workers of every kind have alike: tasks as bytes, versions, files, and what can go wrong.

Classes that hold rows refuse to be pickled. Of rows on disk, where the files are is written in
their place, and a worker opens them by itself; rows in memory are refused as everywhere. Needs the
`dask` or the `spark` extra.
"""

import io
import pickle
import platform
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from numbers import Integral
from pathlib import Path
from typing import Any

from fedopl.base.arrays import check_positive
from fedopl.base.errors import OptionError, StorageError
from fedopl.base.whole_numbers import shown
from fedopl.client.disk.disk_array import DiskArray
from fedopl.client.disk.passes import Partition
from fedopl.client.table.logged_data import ROW_ARRAYS, LoggedData, trusted

# What is under way for each thread of a worker: one partition, and one that waits for it.
AHEAD = 2
# The same bits need the same arithmetic.
SAME_VERSIONS = ("fedopl", "numpy", "scipy", "scikit-learn")


def task_bytes(task: Callable[[Partition], object]) -> bytes:
    """The task, with paths of files in place of rows on disk."""
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, held: object) -> Any:
            if isinstance(held, DiskArray):
                return DiskArray, (held.path.absolute(), held.shape, held.stored, held.digest)
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


# --- before they are asked -----------------------------------------------------------------------


def check_asked(
    address: str | None, workers: int | None, wait: float, *, extra: str, packages: Iterable[str]
) -> None:
    """Refuse what cannot be meant, and workers whose packages are not installed here."""
    if workers is not None and not (isinstance(workers, Integral) and workers >= 1):
        raise OptionError(f"workers: expected a whole number from 1, came {shown(workers)}")
    check_positive(wait, "wait")
    if address is not None and workers is not None:
        raise OptionError("workers: they are started on this machine; leave out the address")
    for package in packages:
        if find_spec(package) is None:
            raise OptionError(
                f"engine: {package} is not installed; run: pip install 'fedopl[{extra}]'"
            )


def versions() -> dict[str, str]:
    """What sums are computed with in this process."""
    return {name: version(name) for name in SAME_VERSIONS} | {"processor": platform.machine()}


def check_versions(worker: str, there: Mapping[str, str], here: Mapping[str, str]) -> None:
    """Refuse a worker whose versions differ from those of the client's process."""
    apart = [name for name in here if there[name] != here[name]]
    if apart:
        said = "; ".join(f"{name} {there[name]}, here {here[name]}" for name in apart)
        raise OptionError(
            f"engine: the worker {worker} has other versions, with which sums may differ: "
            f"{said}. Install the same there"
        )


def size_of(file: Path) -> int | None:
    """How many bytes this process finds there; None if it cannot read the file."""
    try:
        with file.open("rb"):
            return file.stat().st_size
    except OSError:
        return None


def check_size(file: Path, n_bytes: int, worker: str, found: int | None) -> None:
    """Refuse a worker that does not see this file as it is here."""
    if found != n_bytes:
        seen = "cannot read it" if found is None else f"sees {found:,} bytes"
        raise StorageError(
            f"{file}: has {n_bytes:,} bytes here, and the worker {worker} {seen}; put the "
            "client's folder where all workers can read and write it"
        )


# --- what can happen to them ---------------------------------------------------------------------


def no_worker(name: str, wait: float) -> OptionError:
    """Nobody came to work."""
    return OptionError(f"engine: {name} has no worker after {wait:g} seconds; start some")


def all_gone(name: str) -> StorageError:
    """Nobody is left to work."""
    return StorageError(f"{name}: all workers are gone; start some, and start again")


def connection_lost(name: str) -> StorageError:
    """Who hands out work cannot be reached any more."""
    return StorageError(f"{name}: the connection was lost; see to the scheduler, and start again")


def died_of_rows(name: str) -> StorageError:
    """Several workers were given the same rows, and none came back."""
    return StorageError(
        f"{name}: several workers died of the same rows, perhaps for lack of memory; give each "
        "more, and start again"
    )
