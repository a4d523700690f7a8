"""Atomic writes, and exclusive locks on open files.

A file has either its old or its new content, never half of each. The kernel releases a lock when
its process ends, even in a crash. The locks are advisory: they exclude only processes that ask for
them. All of fedopl's do.
"""

import os
import platform
import secrets
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from fedopl.base.errors import StorageError

ANYBODY_HERE = "everybody on this machine"


def refuse_link(path: Path) -> None:
    """Refuse to continue if the path is a symbolic link."""
    if path.is_symlink():
        raise StorageError(
            f"{path}: is a symbolic link, and what is stored there must not lie elsewhere; "
            "replace the link by what it leads to"
        )


def without_detours(path: Path) -> Path:
    """The same path without `..`, unless that would lead elsewhere, as a link may."""
    direct = Path(os.path.normpath(path))
    return direct if direct.resolve() == path.resolve() else path


def owner_only(path: str, flags: int) -> int:
    """An opener for `open`: only the owner can read the files it creates; it follows no link."""
    refuse_link(Path(path))
    # A link may have replaced the file since the check, so refuse links here too.
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)


def who_else_reads(path: Path) -> str:
    """Who can read a file besides its owner, judged by the modes of the file and its folders.

    Empty if nobody else can.
    """
    if os.name != "posix" or not path.exists():
        return ""
    path = path.resolve()
    mode = path.stat().st_mode
    folders = [folder.stat().st_mode for folder in path.parents]
    if mode & stat.S_IROTH and all(folder & stat.S_IXOTH for folder in folders):
        return ANYBODY_HERE
    if mode & stat.S_IRGRP and all(folder & (stat.S_IXGRP | stat.S_IXOTH) for folder in folders):
        return "its group"
    return ""


def check_writable(folder: Path, wanted: str) -> None:
    """Refuse a folder in which no file can be created; the error names `wanted`."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise StorageError(
            f"{folder}: is read-only ({error.strerror}), and {wanted}; let yourself write there "
            f"(chmod u+w {folder}), or move it"
        ) from None


def flush_folder(folder: Path) -> None:
    """Make new names of files in this folder outlast a power cut, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """Say which file could not be written."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}") from None


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a temporary file beside this one; it replaces this one if no error is raised."""
    beside = path.with_name(f".{path.name[:80]}.{secrets.token_hex(4)}")
    with writing_to(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            # Flush before the replacement, or a power cut may leave an empty file.
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be written: {error.strerror}; what was there before is untouched"
        ) from None
    finally:
        with suppress(OSError):
            beside.unlink()


def write_atomically(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write beside the file, flush to the disk, and only then replace the file."""
    with replacing(path, mode) as file:
        file.write(content)


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
