"""The journal: all answers so far, on disk, so that an interrupted run can be resumed.

Each round trip has one file, which is written atomically. A file holds the hash of its own content,
of the queries it answers and of the file before it. So the server notices a file that was changed
or that belongs to another run. Resuming replays the journal: the server computes everything again
from the same answers and gets the same bytes.

Beside the journal is how many entries clients' ledgers have. A ledger with fewer than before went
back: a client whose whole folder was restored from an older copy cannot see that itself, and counts
what it told since as never told. These numbers change no byte of what a run comes to.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from fedopl.base.errors import StorageError
from fedopl.base.files import replacing, write_atomically
from fedopl.server.exchange.answers import Place, Replies

FORMAT = "fedopl-trip-1"


@dataclass
class Journal:
    """A folder with one file per round trip; without a folder, nothing is kept."""

    folder: Path | None = None
    rows: str = ""  # a fingerprint of the clients' rows, if one process holds them all
    _previous: str = field(default="", init=False)

    def replay(self, trip: int, queries: Mapping[str, bytes]) -> Replies | None:
        """The replies to these queries, if this round trip is in the journal; otherwise None."""
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
        """Write the replies of a round trip to the journal."""
        if self.folder is None:
            return
        header = {
            "format": FORMAT,
            "previous": self._previous,
            "queries": _digest_of(queries),
            "rows": self.rows,
            "replies": [[place.name, place.size] for place in replies.places],
        }
        first = json.dumps(header).encode() + b"\n"
        digest = hashlib.sha256(first)
        for _, content in replies:
            digest.update(content)
        # Clients answered only this server, so other users of its machine may not read the file.
        with replacing(self._path(trip), 0o600) as file:
            file.write(digest.hexdigest().encode() + b"\n" + first)
            for _, content in replies:
                file.write(content)
        self._previous = digest.hexdigest()

    def forget(self, trip: int) -> None:
        """Delete a round trip at which the run failed, so that a resumed run asks again."""
        if self.folder is not None:
            self._path(trip).unlink(missing_ok=True)

    def _path(self, trip: int) -> Path:
        assert self.folder is not None  # noqa: S101
        return self.folder / f"trip-{trip:05d}.bin"


def _digest_of(queries: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name in sorted(queries):
        # Lengths are included, so that two different sets of queries never give the same bytes.
        digest.update(f"{name}\x1f{len(queries[name])}\x1f".encode())
        digest.update(queries[name])
    return digest.hexdigest()


def _read(path: Path) -> tuple[dict[str, object], Replies, str]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        return _parsed(file)
    except (ValueError, KeyError, TypeError):
        file.close()
        raise StorageError(
            f"{path}: was changed or cut off since it was written; delete it and all later ones "
            "in its folder to resume from the trip before"
        ) from None


def _parsed(file: IO[bytes]) -> tuple[dict[str, object], Replies, str]:
    digest = file.readline().rstrip(b"\n").decode()
    body = file.tell()
    if hashlib.file_digest(file, "sha256").hexdigest() != digest:  # type: ignore[arg-type]
        raise ValueError("the content does not match its hash")
    file.seek(body)
    header = json.loads(file.readline())
    if header["format"] != FORMAT:
        raise ValueError("another format")
    places, start = [], file.tell()
    for name, size in header["replies"]:
        places.append(Place(name, start, size))
        start += size
    return header, Replies(file, tuple(places)), digest


HEADS_FILE = "heads.json"


class LedgerHeads:
    """The number of entries that each client said last, in a file if the journal has a folder."""

    def __init__(self, folder: Path | None) -> None:
        self._path = folder and folder / HEADS_FILE
        # By client: the trip it answered last, and the number of entries before that trip and now.
        self._said: dict[str, tuple[int, int, int]] = {}
        self._lacking: dict[str, dict[str, int]] = {}
        if self._path and self._path.exists():
            try:
                self._said, self._lacking = json.loads(self._path.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                raise StorageError(f"{self._path}: cannot be read; delete it to go on") from None

    def note(self, trip: int, heads: Mapping[str, int]) -> None:
        """Compare what clients say with what they said before; each answer adds an entry."""
        for name, n_entries in sorted(heads.items()):
            last, before, latest = self._said.get(name, (trip, 0, 0))
            if last != trip:  # a trip that is made again has the numbers from before it
                before = latest
            self._said[name] = (trip, before, n_entries)
            if n_entries <= before > 0:
                self._lacking.setdefault(str(trip), {})[name] = before + 1 - n_entries
        if heads and self._path:
            content = json.dumps([self._said, self._lacking])
            write_atomically(self._path, content.encode(), mode=0o600)

    def went_back(self, trip: int) -> dict[str, int]:
        """The clients whose ledgers went back before this trip, and at least how many entries."""
        return self._lacking.get(str(trip), {})
