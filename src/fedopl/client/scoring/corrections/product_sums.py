"""Sums of all products of two or of three sign steps over rows, from tables of cells.

Where features are cut into bins, a product of steps is +1 or −1 throughout a cell of two or three
features' bins. So one table of cells, summed up along its axes, gives the sums of all products of
these features, at all their cuts. It takes one visit to a row, however many cuts there are.
"""

from itertools import chain
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.messages.evaluation.interactions_left import feature_products

_MOST_NUMBERS = 1 << 22  # of rows' cells, and of tables, that are held in memory
# At how many quantiles steps are, in products of two and of three; the first that have room.
_N_CUTS = ((7, 5), (3, 3), (1, 1), (7, 0), (3, 0), (1, 0))
LEAST_ROWS_BESIDE = 10  # rows on either side of a step


class SignStep(NamedTuple):
    """+1 where a feature lies beyond a value, −1 elsewhere."""

    place: int
    cut: float

    def of(self, contexts: FloatArray) -> FloatArray:  # (n_rows,)
        """The signs of these rows."""
        return np.where(contexts[:, self.place] > self.cut, 1.0, -1.0)


Product = tuple[SignStep, ...]


class ProductSums:
    """The products that are tried on some rows, and their sums by the action that rows took."""

    def __init__(self, contexts: FloatArray, actions: IntArray, n_actions: int) -> None:
        n_rows, n_features = contexts.shape
        places = feature_products(n_features)
        of_two, of_three = (np.array([own for own in places if len(own) == k]) for k in (2, 3))
        self._tables = list[_CellTables]()
        for for_two, for_three in _N_CUTS:
            asked = [(of_two, for_two), (of_three, for_three)]
            own = [(them, n_cuts) for them, n_cuts in asked if len(them) and n_cuts]
            needed = [
                len(them) * max(n_rows, (n_cuts + 1) ** them.shape[1] * n_actions)
                for them, n_cuts in own
            ]
            if sum(needed) <= _MOST_NUMBERS:
                self._tables = [
                    _CellTables(contexts, them, n_cuts, actions, n_actions) for them, n_cuts in own
                ]
                break
        self.exist = np.concatenate([np.zeros(0, np.bool_), *(own.exist for own in self._tables)])

    def of(self, values: FloatArray) -> FloatArray:  # (n_products, n_actions)
        """Sums of the products times these values, (n_rows,)."""
        return np.concatenate([own.sums(values) for own in self._tables])

    def __getitem__(self, index: int) -> Product:
        for own in self._tables:
            if index < len(own.exist):
                return own.product(index)
            index -= len(own.exist)
        raise IndexError(index)


class _CellTables:
    """Products of as many steps as `places`, (n_combinations, n_steps), has columns."""

    def __init__(
        self,
        contexts: FloatArray,
        places: IntArray,
        n_cuts: int,
        actions: IntArray,
        n_actions: int,
    ) -> None:
        n_combinations, n_steps = places.shape
        self._places, self._n_actions = places, n_actions
        self._cuts = np.array([_cuts(column, n_cuts) for column in contexts.T])
        bins = np.stack(
            [np.searchsorted(own, x) for own, x in zip(self._cuts, contexts.T, strict=True)]
        )  # how many cuts a value lies beyond
        self._shape = (n_combinations, *([n_cuts + 1] * n_steps), n_actions)
        # A cell's number in a table with one axis for each step, and a last one for actions.
        cells = np.arange(n_combinations)[:, None] * int(np.prod(self._shape[1:])) + actions
        for axis, own in enumerate(places.T, 2):
            strided = bins * int(np.prod(self._shape[axis:]))
            for place, into in zip(own.tolist(), cells, strict=True):
                into += strided[place]
        self._cells = cells.ravel()
        finite = np.isfinite(self._cuts)[places]  # (n_combinations, n_steps, n_cuts)
        self.exist: BoolArray = np.asarray(_outer(finite)).reshape(-1)

    def sums(self, values: FloatArray) -> FloatArray:  # (n_products, n_actions)
        """Sums of the products times these values, by action."""
        every = np.tile(values, self._shape[0])
        table = np.bincount(self._cells, every, int(np.prod(self._shape))).reshape(self._shape)
        for axis in range(1, table.ndim - 1):
            # No matrix product: its last digits, and with them ties, would follow the processor.
            below = np.moveaxis(table.cumsum(axis=axis), axis, 0)
            table = np.moveaxis(below[-1] - 2 * below[:-1], 0, axis)
        return table.reshape(-1, self._n_actions)

    def product(self, index: int) -> Product:
        """The product with this number."""
        n_cuts, n_steps = self._cuts.shape[1], self._places.shape[1]
        which, *cuts = np.unravel_index(index, (len(self._places), *([n_cuts] * n_steps)))
        own = self._places[which].tolist()
        return tuple(
            SignStep(place, float(self._cuts[place, cut]))
            for place, cut in zip(own, cuts, strict=True)
        )


def _outer(finite: BoolArray) -> BoolArray:  # (n_combinations, n_cuts, …)
    """Of which cuts, one for each step, all exist."""
    found = finite[:, 0]
    for own in np.moveaxis(finite, 1, 0)[1:]:
        found = found[..., None] & own.reshape(len(own), *([1] * (found.ndim - 1)), -1)
    return found


def _cuts(column: FloatArray, most: int) -> list[float]:
    """Ascending quantiles; infinite where fewer leave enough rows on both sides."""
    shares = np.arange(1, most + 1) / (most + 1)
    cuts = np.unique(np.quantile(column, shares, method="lower")).tolist()
    beyond = [(cut, int(np.count_nonzero(column > cut))) for cut in cuts]
    enough = range(LEAST_ROWS_BESIDE, len(column) - LEAST_ROWS_BESIDE + 1)
    kept = [cut for cut, n_rows in beyond if n_rows in enough]
    return list(chain(kept, [np.inf] * (most - len(kept))))
