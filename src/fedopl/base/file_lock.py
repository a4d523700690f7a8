"""Exclusive locks on open files; the kernel releases a lock when its process ends, even in a crash.

The locks are advisory: they exclude only processes that ask for them. All of fedopl's do.
"""

import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from fedopl.base.errors import StorageError
from fedopl.base.files import owner_only

RETRY_SECONDS = 0.02
MOST_BYTES_OF_HOLDER = 400

if sys.platform == "win32":
    import msvcrt

    # On Windows, others cannot read locked bytes. So the lock is on a byte beyond the file's end.
    _BEYOND_THE_END = 1 << 40

    def _take(handle: int) -> None:
        os.lseek(handle, _BEYOND_THE_END, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        finally:
            os.lseek(handle, 0, os.SEEK_SET)

else:
    import fcntl

    def _take(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def locked(path: Path, seconds: float, taken: str = "") -> Iterator[None]:
    """Hold the lock on this file; wait at most `seconds` for it. Creates the file if needed.

    `taken` is the error where another process holds it for longer, if the lock means more to
    people than its file.
    """
    with _opened(path) as handle:
        if not _taken(handle, path, seconds):
            held = f"{path}: another process has held the lock on it for {seconds:g} s; let it end"
            raise StorageError(taken or held)
        yield


def is_locked(path: Path) -> bool:
    """Whether some process holds the lock on this file."""
    if not path.exists():
        return False
    with _opened(path) as handle:
        return not _taken(handle, path, 0)


@contextmanager
def occupied(folder: Path, name: str, advice: str) -> Iterator[None]:
    """Reserve a folder, with its file of this name as lock; if it is taken, the error says by whom.

    The error adds this `advice`.
    """
    path = folder / name
    with _opened(path) as handle:
        # The previous holder may have ended, and removed the file, since we opened it.
        if not _taken(handle, path, 0) or not os.fstat(handle).st_nlink:
            holder = os.read(handle, MOST_BYTES_OF_HOLDER).decode(errors="replace").strip()
            raise StorageError(f"{folder}: in use by {holder or 'another process'}; {advice}")
        os.ftruncate(handle, 0)
        since = datetime.now(UTC).isoformat(" ", timespec="seconds")
        os.write(handle, f"process {os.getpid()} on {platform.node()} since {since}\n".encode())
        try:
            yield
        finally:
            with suppress(OSError):  # Windows removes no open file
                path.unlink()


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = owner_only(str(path), os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise StorageError(f"{path}: cannot be opened: {error.strerror}") from None
    try:
        yield handle
    finally:
        os.close(handle)


def _taken(handle: int, path: Path, seconds: float) -> bool:
    """Whether the lock was obtained in time."""
    end = time.monotonic() + seconds
    while True:
        try:
            _take(handle)
        except (BlockingIOError, PermissionError):  # on Unix and on Windows, respectively
            if time.monotonic() >= end:
                return False
            time.sleep(RETRY_SECONDS)
        except OSError as error:
            raise StorageError(f"{path}: cannot be locked: {error.strerror}") from None
        else:
            return True
