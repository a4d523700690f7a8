"""A ledger whose head the client's private store knows: a lost, older or copied one is refused.

The head is the number of entries, their bytes, and a hash over all lines. Before a line is
appended, the store keeps the head before it and the line, in one atomic replacement. So a process
may be killed at any moment: a ledger with the head before lacks only that line, which is then
appended. Any other head means that the ledger is not the one that was written here. A ledger that
the store knows nothing of is taken as it is, once: it is from version 0.2.0.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np

from fedopl.base.errors import StorageError
from fedopl.base.files import owner_only
from fedopl.client.disclosure.ledger import Entry, FileLedger, Ledger
from fedopl.client.disk.store import Store
from fedopl.messages.bundle import headed


@dataclass(frozen=True)
class Head:
    """What identifies all complete lines of a ledger."""

    n_entries: int = 0
    n_bytes: int = 0
    digest: bytes = bytes(32)

    def after(self, line: bytes) -> "Head":
        """The head when this line was appended."""
        digest = hashlib.sha256(self.digest + line).digest()
        return Head(self.n_entries + 1, self.n_bytes + len(line), digest)


class CheckedLedger(Ledger):
    """A ledger in a file, with its head in a store; both are changed under the ledger's lock."""

    def __init__(self, file: FileLedger, store: Store) -> None:
        self.file, self._store = file, store
        self._key = f"head of {file.path.name}"
        self._seen = Head()  # lines up to here were read by this process

    @property
    def position(self) -> int:
        """The number of entries when it was last locked or written."""
        return self._seen.n_entries

    @contextmanager
    def locked(self) -> Iterator[None]:
        """A context in which no other process answers; an error if the ledger was replaced."""
        with self.file.locked():
            if line := self._lacking():  # which a killed process left in the store alone
                self.file.append_line(line)
                self._seen = self._seen.after(line)
            yield

    def append(self, entry: Entry) -> None:
        """Add an entry, while the ledger is locked; the store has it first."""
        line, before = self.file.line_of(entry), self._seen
        kept = {
            "size": np.array([before.n_entries, before.n_bytes]),
            "digest": np.frombuffer(before.digest, np.uint8),
            "line": np.frombuffer(line, np.uint8),
        }
        self._store.put(self._key, kept)
        self._seen = before.after(line)
        self.file.append_line(line)

    def since(self, position: int) -> tuple[list[Entry], int]:
        """The entries from this byte on, and the byte after them."""
        return self.file.since(position)

    def check(self) -> None:
        """Raise an error if the ledger is not the one that the store knows; nothing is written."""
        with self.file.locked() if self.file.path.exists() else nullcontext():
            self._lacking()

    def _lacking(self) -> bytes:
        """The line that the store has and the ledger lacks; an error if they differ in more."""
        found = self._seen = self._head()
        if not self._store.has(self._key):
            return b""
        kept = self._store.get(self._key)
        if kept is None:
            raise StorageError(
                f"{self.file.path}: what the private store (scores/) knows of it is damaged; "
                "restore the store"
            )
        line = kept["line"].tobytes()
        n_entries, n_bytes = map(int, kept["size"])
        before = Head(n_entries, n_bytes, kept["digest"].tobytes())
        after = before.after(line)
        if found == after:
            return b""
        if found == before:
            return line
        came = f"{found.n_entries:,}" if found.n_entries != after.n_entries else "others"
        raise StorageError(
            f"{self.file.path}: expected entries up to number {after.n_entries:,}, of which the "
            f"private store (scores/) knows, came {came}: it was lost, or replaced by an older or "
            "another ledger. It says what was spent of these rows, so nothing is answered before "
            "you restore it as it was last"
        )

    def _head(self) -> Head:
        """The head of the file, without a line that a killed process left unfinished."""
        try:
            with open(self.file.path, "rb", opener=owner_only) as file:
                if file.seek(0, 2) < self._seen.n_bytes:
                    self._seen = Head()
                file.seek(self._seen.n_bytes)
                content = file.read()
        except FileNotFoundError:
            return Head()
        except OSError as error:
            raise StorageError(f"{self.file.path}: cannot be read: {error.strerror}") from None
        head = self._seen
        for line in content.split(b"\n")[:-1]:
            head = head.after(line + b"\n")
        return head


def with_checks(ledger: Ledger, store: Store | None) -> Ledger:
    """The ledger, with its head in the store, if both outlive the process."""
    if isinstance(ledger, FileLedger) and store is not None and store.is_lasting:
        return CheckedLedger(ledger, store)
    return ledger


def with_head(content: bytes, ledger: Ledger) -> bytes:
    """An answer, and if its ledger lasts, how many entries that has now."""
    return headed(content, ledger.position) if isinstance(ledger, CheckedLedger) else content
