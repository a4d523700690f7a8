"""How many entries clients' ledgers have: a ledger that has fewer than before went back.

A client whose whole folder was restored from an older copy cannot see that itself, and counts what
it told since as never told. The numbers are kept beside the journal and not in it, so that they
change no byte of what a run comes to.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from fedopl.base.errors import StorageError
from fedopl.base.files import write_atomically

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
