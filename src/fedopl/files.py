"""Files that are either as they were or as they should be, never half of each."""

import contextlib
import os
import tempfile
from pathlib import Path

from fedopl.errors import StorageError


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the file, flush to the disk, and only then take its place."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(beside).replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            Path(beside).unlink()
        raise StorageError(
            f"{path}: cannot be written: {error.strerror}; what was there before is untouched"
        ) from None


def write_between(path: Path, mark: str, lines: list[str]) -> None:
    """Replace what stands between `<!-- mark -->` and `<!-- end of mark -->` in a text file."""
    begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
    text = path.read_text(encoding="utf-8")
    if begin not in text or end not in text:
        raise StorageError(f"{path}: has no {begin.strip()} … {end} to write between")
    before, rest = text.split(begin, 1)
    after = rest.split(end, 1)[1]
    write_atomically(path, (before + begin + "\n".join([*lines, ""]) + end + after).encode())
