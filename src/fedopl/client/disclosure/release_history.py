"""History of released answers, kept with the rows.

A new answer is checked against it, so that differencing the two cannot isolate a few rows.
"""

from collections.abc import Iterable

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import StorageError
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disk.store import Arrays, Store
from fedopl.messages.refusal import RefusalCode


class ReleaseHistory:
    """Append-only lists of arrays in a store, one list for each kind of release."""

    def __init__(self, store: Store, key: str) -> None:
        self._store, self._key = store, key

    def released(self, kind: str) -> list[Arrays]:
        """Everything of this kind that was released so far, oldest first."""
        found: dict[str, Arrays] = {}
        for name, array in sorted(self._kept(kind).items()):
            position, _, own = name.partition(" ")
            found.setdefault(position, {})[own] = array
        return list(found.values())

    def _kept(self, kind: str) -> Arrays:
        key = f"{self._key} {kind}"
        kept = self._store.get(key)
        if kept is None and self._store.has(key):
            raise StorageError(
                "the record of earlier releases is damaged; restore the private store"
            )
        return kept or {}

    def add(self, kind: str, new: Iterable[Arrays]) -> None:
        """Append these items, which are about to be released."""
        every = [*self.released(kind), *new]
        self._store.put(
            f"{self._key} {kind}",
            {f"{n:06d} {name}": a for n, item in enumerate(every) for name, a in item.items()},
        )

    def first(self, kind: str) -> Arrays:
        """The first query of this kind; empty if there was none."""
        return self._kept(kind)

    def require_first(self, kind: str, **asked: FloatArray) -> None:
        """Refuse a query that differs from the first of its kind.

        Sums over two grids give the sums between their cuts. Two steps from two starts give the
        rows of a batch.
        """
        first = self._kept(kind)
        if set(first) != set(asked):
            self._store.put(f"{self._key} {kind}", asked)
        elif not all(np.array_equal(first[name], asked[name]) for name in asked):
            raise RefusedError(RefusalCode.BUDGET_SPENT)
