"""What workers of every kind have alike: the same versions and files, and results in order."""

import platform
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from numbers import Integral
from pathlib import Path
from typing import Any, TypeVar

from fedopl.base.arrays import check_positive
from fedopl.base.errors import OptionError, StorageError
from fedopl.base.whole_numbers import shown

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# What is under way for each thread of a worker: one partition, and one that waits for it.
AHEAD = 2
# The same bits need the same arithmetic.
SAME_VERSIONS = ("fedopl", "numpy", "scipy", "scikit-learn")


def results_in_order(
    submit: Callable[[_Item], Any],
    result: Callable[[Any], _Result],
    items: Iterable[_Item],
    most: int,
) -> Iterator[_Result]:
    """The result for each item, in their order; at most this many are under way meanwhile."""
    coming: deque[Any] = deque()
    try:
        for item in items:
            coming.append(submit(item))
            if len(coming) >= most:
                yield result(coming.popleft())
        while coming:
            yield result(coming.popleft())
    finally:
        for unwanted in coming:
            unwanted.cancel()


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
