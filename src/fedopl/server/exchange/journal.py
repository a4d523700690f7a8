"""The journal: what was answered on every trip so far, so that a killed run can go on.

One file for each trip, written whole or not at all. Each holds the hash of its own content, of
the queries it answers and of the file before it, so a file that was changed, or that belongs to
another run, is noticed. Resuming replays the journal: the server computes everything again from the
same answers and ends with the same bytes.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedopl.base.errors import StorageError
from fedopl.base.files import write_atomically

Replies = list[tuple[str, bytes]]
FORMAT = "fedopl-trip-1"


@dataclass
class Journal:
    """A folder of trips; without a folder nothing is kept."""

    folder: Path | None = None
    rows: str = ""  # a fingerprint of the clients' rows, where one process holds them all
    _previous: str = field(default="", init=False)

    def replay(self, trip: int, queries: Mapping[str, bytes]) -> Replies | None:
        """What was answered to these queries, if this trip was journalled."""
        if self.folder is None or not self._path(trip).exists():
            return None
        path = self._path(trip)
        header, replies, digest = _read(path)
        expected = (self._previous, _digest_of(queries), self.rows)
        if (header["previous"], header["queries"], header["rows"]) != expected:
            raise StorageError(
                f"{path}: belongs to another run (another study, data or version); "
                "point the run at an empty folder, or at the one it was started with"
            )
        self._previous = digest
        return replies

    def keep(self, trip: int, queries: Mapping[str, bytes], replies: Replies) -> None:
        """Write a trip down."""
        if self.folder is None:
            return
        header = {
            "format": FORMAT,
            "previous": self._previous,
            "queries": _digest_of(queries),
            "rows": self.rows,
            "replies": [[name, len(content)] for name, content in replies],
        }
        body = json.dumps(header).encode() + b"\n" + b"".join(content for _, content in replies)
        digest = hashlib.sha256(body).hexdigest()
        # Clients answered this server alone, so nobody else on its machine may read it.
        write_atomically(self._path(trip), digest.encode() + b"\n" + body, mode=0o600)
        self._previous = digest

    def forget(self, trip: int) -> None:
        """Drop a trip that the run failed at, so that going on means asking again."""
        if self.folder is not None:
            self._path(trip).unlink(missing_ok=True)

    def _path(self, trip: int) -> Path:
        assert self.folder is not None  # noqa: S101
        return self.folder / f"trip-{trip:05d}.bin"


def _digest_of(queries: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name in sorted(queries):
        # With each length, so that no two different sets of queries are the same bytes.
        digest.update(f"{name}\x1f{len(queries[name])}\x1f".encode())
        digest.update(queries[name])
    return digest.hexdigest()


def _read(path: Path) -> tuple[dict[str, object], Replies, str]:
    try:
        return _parsed(path.read_bytes())
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise StorageError(
            f"{path}: was changed or cut off since it was written; delete it and all later ones "
            "in its folder to resume from the trip before"
        ) from None


def _parsed(file: bytes) -> tuple[dict[str, object], Replies, str]:
    digest, body = file.split(b"\n", 1)
    if hashlib.sha256(body).hexdigest() != digest.decode():
        raise ValueError("the content does not match its hash")
    first, content = body.split(b"\n", 1)
    header = json.loads(first)
    if header["format"] != FORMAT:
        raise ValueError("another format")
    replies, start = [], 0
    for name, size in header["replies"]:
        replies.append((name, content[start : start + size]))
        start += size
    return header, replies, digest.decode()
