"""Rule *once*: a question that was answered gets the same bytes again, in any later process.

They are stored, not computed again: other models, other bits of another processor, or fewer members
of an aggregator would give another answer, and the two could be subtracted.
"""

from dataclasses import dataclass

import numpy as np

from fedopl.client.disk.store import Store


@dataclass(frozen=True)
class SentAnswers:
    """The answers of one client, or aggregator, in one study."""

    store: Store
    study: bytes
    name: str

    def get(self, asked: str) -> bytes | None:
        """The answer to the query of this hash; None if there is none that outlived its process."""
        kept = self.store.get(self._key(asked)) if self.store.is_lasting else None
        return None if kept is None or "bytes" not in kept else kept["bytes"].tobytes()

    def keep(self, asked: str, answer: bytes) -> None:
        """Store an answer that is about to be sent."""
        if self.store.is_lasting:
            self.store.put(self._key(asked), {"bytes": np.frombuffer(answer, np.uint8)})

    def _key(self, asked: str) -> str:
        return f"{self.study.hex()} {self.name} answer {asked}"
