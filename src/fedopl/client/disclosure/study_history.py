"""What a study's later questions have to agree with, kept with the rows.

Sums over two grids give the sums between their cuts, and steps from two starts the rows of a batch.
So a study has one set of found terms, one of ranges, one grid, and each step begins in one place.
"""

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import StorageError
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disk.store import Arrays, Store
from fedopl.messages.refusal import RefusalCode


class StudyHistory:
    """The first question of each kind, in a store."""

    def __init__(self, store: Store, key: str) -> None:
        self._store, self._key = store, key

    def first(self, kind: str) -> Arrays:
        """The first query of this kind; empty if there was none."""
        key = f"{self._key} {kind}"
        kept = self._store.get(key)
        if kept is None and self._store.has(key):
            raise StorageError(
                "the record of earlier questions is damaged; restore the private store"
            )
        return kept or {}

    def require_first(self, kind: str, **asked: FloatArray) -> None:
        """Refuse a query that differs from the first of its kind."""
        first = self.first(kind)
        if set(first) != set(asked):
            self._store.put(f"{self._key} {kind}", asked)
        elif not all(np.array_equal(first[name], asked[name]) for name in asked):
            raise RefusedError(RefusalCode.ASKED_ALREADY)
