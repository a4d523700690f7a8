"""What was told before, kept where the rows are: with it, a later answer could tell of a few."""

from collections.abc import Iterable

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disk.store import Arrays, Store
from fedopl.messages.vocabulary import RefusalCode


class Told:
    """Named lists of arrays in a store, which grow."""

    def __init__(self, store: Store, key: str) -> None:
        self._store, self._key = store, key

    def before(self, what: str) -> list[Arrays]:
        """What was told before under this name, in the order in which it was."""
        found: dict[str, Arrays] = {}
        for name, array in sorted((self._store.get(f"{self._key} {what}") or {}).items()):
            place, _, own = name.partition(" ")
            found.setdefault(place, {})[own] = array
        return list(found.values())

    def add(self, what: str, told: Iterable[Arrays]) -> None:
        """Keep what is told now behind what was told before."""
        every = [*self.before(what), *told]
        self._store.put(
            f"{self._key} {what}",
            {f"{n:06d} {name}": a for n, item in enumerate(every) for name, a in item.items()},
        )

    def agree_on_grid(self, n_cuts: FloatArray, cuts: FloatArray) -> None:
        """Keep to the first grid that was asked about: another would tell what lies between."""
        key, grid = f"{self._key} grid", {"n_cuts": n_cuts, "cuts": cuts}
        kept = self._store.get(key)
        if kept is None or set(kept) != set(grid):
            self._store.put(key, grid)
        elif not all(np.array_equal(kept[name], grid[name]) for name in grid):
            raise RefusedError(RefusalCode.BUDGET_SPENT)
