"""Rare values: a feature that few rows have beside the usual value gives those rows away in sums.

If one row of a cell has x_j = 1 and all others have 0, then Σ x_j·(x, 1, y) over the cell is that
row. So before anything is summed, a value that fewer than `minimum_cell` rows of the sum have is
taken for the one that the others have.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray

# Contexts of some training rows, and the cell that each is in; called once for every pass.
Parts = Callable[[], Iterable[tuple[FloatArray, IntArray]]]
# A value that most rows have is one that many of so few have.
N_SAMPLED, MANY = 1000, 0.3


@dataclass(frozen=True, eq=False, kw_only=True)
class RareValues:
    """Of one feature: what is usual in each cell, and the cells in which others are few."""

    feature: int
    usual: FloatArray  # (n_cells,)
    changed: BoolArray  # (n_cells,)


def rare_values(parts: Parts, n_cells: int, minimum: int) -> tuple[RareValues, ...]:
    """What has to be changed, found in two passes; nothing if any number of rows may be told.

    A feature has a usual value where it has two values, or where most rows have the same one.
    Sums over all cells are known, too, so what is changed must not be few rows either: then the
    value is changed in further cells.
    """
    if minimum < 2:
        return ()
    usual = _with_usual_values(parts)
    if not usual:
        return ()
    counts, in_cell = _counted(parts, usual, n_cells)
    return tuple(_rare(counts, in_cell, minimum))


def without(
    rare: Iterable[RareValues], contexts: FloatArray, cells: IntArray
) -> FloatArray:  # shaped as contexts
    """The contexts, in which rare values are the usual ones; as they are where there are none."""
    changed = contexts
    for one in rare:
        usual = one.usual[cells]
        few = (contexts[:, one.feature] != usual) & one.changed[cells]
        if few.any():
            changed = contexts.copy() if changed is contexts else changed
            changed[few, one.feature] = usual[few]
    return changed


# --- which features have a usual value -----------------------------------------------------------


@dataclass
class _Seen:
    """What is known of a feature so far."""

    values: set[float] | None = field(default_factory=set)  # None if there are more than two
    mostly: set[float] = field(default_factory=set)  # what most rows of some part have

    def see(self, column: FloatArray) -> None:
        sample = column[:: max(1, len(column) // N_SAMPLED)]
        if self.values is not None:
            # Most features have many values, which a few rows show.
            found = _two_values(sample) and _two_values(column)
            self.values = self.values | found if found else None
            if self.values is not None and len(self.values) > 2:
                self.values = None
        usual = _mostly(column, sample)
        self.mostly |= set() if usual is None else {usual}

    @property
    def candidates(self) -> tuple[float, ...]:
        """Both values of a feature with two, else those that may be what most rows have."""
        found = self.mostly if self.values is None or len(self.values) < 2 else self.values
        return tuple(sorted(found))


def _two_values(column: FloatArray) -> set[float]:
    """The values of a column that has one or two, else nothing."""
    low, high = float(column.min()), float(column.max())
    return {low, high} if ((column == low) | (column == high)).all() else set()


def _mostly(column: FloatArray, sample: FloatArray) -> float | None:
    """The value of more than half of the rows, if there is one."""
    if np.count_nonzero(sample == np.median(sample)) < MANY * len(sample):
        return None
    usual = float(np.median(column))
    return usual if 2 * np.count_nonzero(column == usual) > len(column) else None


def _with_usual_values(parts: Parts) -> dict[int, tuple[tuple[float, ...], bool]]:
    """By feature: candidates for its usual value, and whether it has just these two."""
    seen: dict[int, _Seen] = {}
    for contexts, _ in parts():
        for feature in range(contexts.shape[1]) if len(contexts) else ():
            seen.setdefault(feature, _Seen()).see(contexts[:, feature])
    return {
        feature: (one.candidates, one.values is not None and len(one.values) == 2)
        for feature, one in seen.items()
        if one.candidates
    }


# --- how many rows have another ------------------------------------------------------------------

_Counts = dict[tuple[int, float, bool], IntArray]  # feature, value, one of two → rows by cell


def _counted(
    parts: Parts, usual: dict[int, tuple[tuple[float, ...], bool]], n_cells: int
) -> tuple[_Counts, IntArray]:
    """How many rows of each cell have each value, and how many rows there are."""
    counts: _Counts = {
        (feature, value, two): np.zeros(n_cells, np.int64)
        for feature, (values, two) in usual.items()
        for value in values
    }
    in_cell = np.zeros(n_cells, np.int64)
    for contexts, cells in parts():
        in_cell += np.bincount(cells, minlength=n_cells)
        for (feature, value, _), found in counts.items():
            found += np.bincount(cells[contexts[:, feature] == value], minlength=n_cells)
    return counts, in_cell


def _rare(counts: _Counts, in_cell: IntArray, minimum: int) -> Iterator[RareValues]:
    pairs: dict[int, list[tuple[float, IntArray]]] = {}
    for (feature, value, two), found in counts.items():
        if two:
            pairs.setdefault(feature, []).append((value, found))
        elif 2 * found.sum() > in_cell.sum():
            usual = np.full(len(in_cell), value)
            yield from _changed(feature, usual, in_cell - found, minimum)
    for feature, ((low, n_low), (high, n_high)) in pairs.items():
        mostly_high = 2 * n_high > in_cell
        usual = np.where(mostly_high, high, low)
        yield from _changed(feature, usual, np.where(mostly_high, n_low, n_high), minimum)


def _changed(feature: int, usual: FloatArray, few: IntArray, minimum: int) -> Iterator[RareValues]:
    changed = _to_change(few, minimum)
    if changed.any():
        yield RareValues(feature=feature, usual=usual, changed=changed)


def _to_change(counts: IntArray, minimum: int) -> BoolArray:  # (n_cells,)
    """The cells with a few such rows, and further ones until these are not few all together."""
    chosen: BoolArray = (counts > 0) & (counts < minimum)
    for cell in np.argsort(np.where(counts > 0, counts, np.iinfo(np.int64).max), kind="stable"):
        if not 0 < counts[chosen].sum() < minimum:
            break
        chosen[cell] = counts[cell] > 0
    return chosen
