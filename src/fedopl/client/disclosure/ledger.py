"""The ledger: an append-only record, kept by the client, of everything it ever answered.

Budgets of queries are counted from it, so that they last as long as the ledger does.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from fedopl.base.arrays import length
from fedopl.base.errors import StorageError
from fedopl.base.file_lock import locked
from fedopl.base.files import owner_only
from fedopl.client.disclosure.limits import RefusedError
from fedopl.messages.codec import ARRAYS
from fedopl.messages.message import Message
from fedopl.messages.refusal import Refusal, RefusalCode

# How long one process waits while another answers for the same client.
WAIT_SECONDS = 120.0
NOBODY_ELSE = nullcontext()


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One answer: when, to which query, and what was released."""

    when: str
    study: str  # its digest
    exchange: int
    query: str
    answer: str
    reason: str  # of a refusal, else empty
    shapes: dict[str, list[int]]
    norms: dict[str, float]
    n_bytes: int
    sha256: str  # of the answer, so that a copy of it can be checked later
    query_sha256: str


class Ledger(Protocol):
    """A list of entries that only grows."""

    def append(self, entry: Entry) -> None:
        """Add an entry; it must be safe before the answer leaves."""

    def entries(self) -> list[Entry]:
        """Everything so far, oldest first."""

    def since(self, position: int) -> tuple[list[Entry], int]:
        """The entries from a position on, 0 at first, and the position after them."""

    def locked(self) -> AbstractContextManager[None]:
        """A context in which nobody else answers by this ledger."""


class MemoryLedger(list[Entry]):
    """A ledger that lives as long as the process."""

    def entries(self) -> list[Entry]:
        """Everything so far, oldest first."""
        return list(self)

    def since(self, position: int) -> tuple[list[Entry], int]:
        """The entries after the first so many, and how many there are."""
        return self[position:], len(self)

    def locked(self) -> AbstractContextManager[None]:
        """No other process can have it."""
        return NOBODY_ELSE


@dataclass(frozen=True)
class FileLedger:
    """A ledger of JSON lines."""

    path: Path

    def append(self, entry: Entry) -> None:
        """Append a line and flush it to the disk; a line written in part is removed."""
        line = (json.dumps(asdict(entry)) + "\n").encode()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._remove_unfinished_line()
            # Unbuffered: a line is one write, which lines of other processes cannot divide.
            with open(self.path, "ab", buffering=0, opener=owner_only) as file:
                size = file.tell()
                written = file.write(line)
                # On the disk before the answer leaves: a crash must not give a budget back.
                os.fsync(file.fileno())
                if written != len(line):
                    file.truncate(size)
        except OSError as error:
            raise StorageError(f"{self.path}: cannot be written: {error.strerror}") from None
        if written != len(line):
            raise StorageError(f"{self.path}: cannot be written: the disk is full")

    def _remove_unfinished_line(self) -> None:
        """Remove a last line that a killed process left unfinished."""
        if not self.path.is_file() or not self.path.stat().st_size:
            return
        with open(self.path, "rb+", opener=owner_only) as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.truncate(self.path.read_bytes().rfind(b"\n") + 1)

    def entries(self) -> list[Entry]:
        """Everything so far, oldest first."""
        return self.since(0)[0]

    def since(self, position: int) -> tuple[list[Entry], int]:
        """The entries from this byte on, and the byte after them."""
        try:
            with open(self.path, "rb", opener=owner_only) as file:
                size = os.fstat(file.fileno()).st_size
                if position > size:
                    raise StorageError(f"{self.path}: was cut off by something else")
                file.seek(position)
                content = file.read(size - position)  # a device would never end
        except FileNotFoundError:
            return [], 0
        except OSError as error:
            raise StorageError(f"{self.path}: cannot be read: {error.strerror}") from None
        # Bytes after the last line break are a line that a killed process left unfinished.
        *lines, unfinished = content.split(b"\n")
        try:
            read_to = position + len(content) - len(unfinished)
            return [Entry(**json.loads(line)) for line in lines], read_to
        except (ValueError, TypeError):
            raise StorageError(f"{self.path}: was changed by something else") from None

    def locked(self) -> AbstractContextManager[None]:
        """A context in which no other process answers by this ledger."""
        # The lock is on the ledger itself: whoever deletes it deletes the budgets, too.
        return locked(self.path, WAIT_SECONDS)


def entry_for(query: Message | None, asked: str, answer: Message, content: bytes) -> Entry:
    """The entry for an answer to the query whose SHA-256 is `asked`."""
    arrays: dict[str, Any] = {name: getattr(answer, name) for name in ARRAYS[type(answer)]}
    return Entry(
        when=datetime.now(UTC).isoformat(timespec="milliseconds"),
        study=_text_of(answer.study),
        exchange=answer.exchange,
        query=type(query).__name__ if query else "unreadable",
        answer=type(answer).__name__,
        reason=answer.reason.name if isinstance(answer, Refusal) else "",
        shapes={name: list(array.shape) for name, array in arrays.items()},
        norms={name: length(array) for name, array in arrays.items()},
        n_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        query_sha256=asked,
    )


@lru_cache(16)
def _text_of(digest: bytes) -> str:
    """The digest as text, shared by all entries of a study to save memory."""
    return digest.hex()


class Budgets:
    """How many different queries of a kind are answered; a repeated query is free.

    A refusal for small cells counts, too, as it discloses that there are such cells. What other
    processes answered, before or since, is in the ledger.
    """

    def __init__(self, budgets: Mapping[type[Any], int], ledger: Ledger, study: bytes) -> None:
        self._budgets, self._ledger, self._study = budgets, ledger, study.hex()
        self._paid: dict[str, set[str]] = {}  # kind of query → SHA-256 of each
        self._read_to = 0

    def _count_new_entries(self) -> None:
        entries, self._read_to = self._ledger.since(self._read_to)
        for entry in entries:
            counts = (
                entry.answer != Refusal.__name__ or entry.reason == RefusalCode.SMALL_CELLS.name
            )
            if counts and entry.study == self._study:
                self._paid.setdefault(entry.query, set()).add(entry.query_sha256)

    def check(self, query: Message, asked: str) -> None:
        """Refuse a query, whose SHA-256 is `asked`, if its budget is spent."""
        budget = self._budgets.get(type(query))
        if budget is None:
            return
        self._count_new_entries()
        paid = self._paid.get(type(query).__name__, ())
        if asked not in paid and len(paid) >= budget:
            raise RefusedError(RefusalCode.BUDGET_SPENT)

    def pay(self, query: Message, asked: str) -> None:
        """Count a query whose answer disclosed something."""
        if type(query) in self._budgets:
            self._paid.setdefault(type(query).__name__, set()).add(asked)
