"""History of released answers, kept with the rows.

A new answer is checked against it, so that differencing the two cannot isolate a few rows.
"""

from collections.abc import Iterable

import numpy as np

from fedopl.base.arrays import FloatArray
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
        for name, array in sorted((self._store.get(f"{self._key} {kind}") or {}).items()):
            position, _, own = name.partition(" ")
            found.setdefault(position, {})[own] = array
        return list(found.values())

    def add(self, kind: str, new: Iterable[Arrays]) -> None:
        """Append what is about to be released."""
        every = [*self.released(kind), *new]
        self._store.put(
            f"{self._key} {kind}",
            {f"{n:06d} {name}": a for n, item in enumerate(every) for name, a in item.items()},
        )

    def require_same_grid(self, n_cuts: FloatArray, cuts: FloatArray) -> None:
        """Refuse every grid but the first: sums over two grids give those between their cuts."""
        key, grid = f"{self._key} grid", {"n_cuts": n_cuts, "cuts": cuts}
        kept = self._store.get(key)
        if kept is None or set(kept) != set(grid):
            self._store.put(key, grid)
        elif not all(np.array_equal(kept[name], grid[name]) for name in grid):
            raise RefusedError(RefusalCode.BUDGET_SPENT)
