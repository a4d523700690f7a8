"""Atomic writes: a file has either its old or its new content, never half of each."""

import contextlib
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
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


@contextlib.contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """Say which file could not be written."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}") from None


@contextlib.contextmanager
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
        with contextlib.suppress(OSError):
            beside.unlink()


def write_atomically(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write beside the file, flush to the disk, and only then replace the file."""
    with replacing(path, mode) as file:
        file.write(content)
