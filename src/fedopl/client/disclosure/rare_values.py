"""Rare values: a feature value that few rows of a sum have would disclose those rows.

If one row of a cell has x_j = 1 and all others have 0, then Σ x_j·(x, 1, y) over the cell is that
row. So before anything is summed, values that fewer than `minimum_cell` rows of the cell have are
masked: the cell's common value replaces them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.disk.passes import totals_of

# Contexts of some training rows, and the cell that each is in; called once for every pass.
ContextPart = tuple[FloatArray, IntArray]
ContextParts = Callable[[], Iterable[ContextPart]]
# A value of more than half of all rows is very likely that of 30 % of a sample.
N_SAMPLED, LEAST_SHARE = 1000, 0.3


@dataclass(frozen=True, eq=False, kw_only=True)
class RareValues:
    """For one feature: each cell's common value, and the cells in which others are masked."""

    feature: int
    common: FloatArray  # (n_cells,)
    masked: BoolArray  # (n_cells,)


class CommonValues(NamedTuple):
    """Values of a feature that most rows might have."""

    values: tuple[float, ...]
    are_all: bool  # whether the feature has two values, and these are both


def rare_values(
    parts: ContextParts, common: Mapping[int, CommonValues], n_cells: int, minimum: int
) -> tuple[RareValues, ...]:
    """What must be masked of features with common values, found in one pass.

    Sums over all cells are released, too. Differencing the two kinds of sums gives the masked rows.
    So the masked rows must not be few in total either. If they are, further cells are masked.
    """
    if not common:
        return ()
    counts, in_cell = _counted(parts, common, n_cells)
    return tuple(_rare(counts, in_cell, minimum))


def mask_rare(
    rare: Iterable[RareValues], contexts: FloatArray, cells: IntArray
) -> FloatArray:  # shaped as contexts
    """The contexts with rare values masked; the same array if there are none."""
    masked = contexts
    for one in rare:
        common = one.common[cells]
        few = (contexts[:, one.feature] != common) & one.masked[cells]
        if few.any():
            masked = contexts.copy() if masked is contexts else masked
            masked[few, one.feature] = common[few]
    return masked


# --- first pass: which features have a common value ----------------------------------------------


@dataclass
class _Seen:
    """What the parts so far show about one feature."""

    values: set[float] | None = field(default_factory=set)  # None if there are more than two
    mostly: set[float] = field(default_factory=set)  # the values that most rows of some part have

    def see(self, column: FloatArray) -> None:
        sample = column[:: max(1, len(column) // N_SAMPLED)]
        if self.values is not None:
            # For most features the sample is enough, because they have many values.
            found = _two_values(sample) and _two_values(column)
            self.values = self.values | found if found else None
            if self.values is not None and len(self.values) > 2:
                self.values = None
        majority = _majority(column, sample)
        self.mostly |= set() if majority is None else {majority}

    def see_also(self, other: "_Seen") -> None:
        both = None if self.values is None or other.values is None else self.values | other.values
        self.values = None if both is None or len(both) > 2 else both
        self.mostly |= other.mostly

    @property
    def candidates(self) -> tuple[float, ...]:
        """Both values of a feature with two values, else those that most rows might have."""
        found = self.mostly if self.values is None or len(self.values) < 2 else self.values
        return tuple(sorted(found))


def _two_values(column: FloatArray) -> set[float]:
    """The values of a column that has one or two, else an empty set."""
    low, high = float(column.min()), float(column.max())
    return {low, high} if ((column == low) | (column == high)).all() else set()


def _majority(column: FloatArray, sample: FloatArray) -> float | None:
    """The value that more than half of the rows have, if there is one; it is then the median."""
    if np.count_nonzero(sample == np.median(sample)) < LEAST_SHARE * len(sample):
        return None
    median = float(np.median(column))
    return median if 2 * np.count_nonzero(column == median) > len(column) else None


def _seen_in(parts: Iterable[ContextPart]) -> dict[int, _Seen]:
    seen: dict[int, _Seen] = {}
    for contexts, _ in parts:
        for feature in range(contexts.shape[1]) if len(contexts) else ():
            seen.setdefault(feature, _Seen()).see(contexts[:, feature])
    return seen


def common_values(parts: ContextParts) -> dict[int, CommonValues]:
    """Candidates for the common value of each feature that has two values or a majority value."""
    seen: dict[int, _Seen] = {}
    for found in totals_of(parts(), _seen_in):
        for feature, one in found.items():
            seen.setdefault(feature, _Seen()).see_also(one)
    return {
        feature: CommonValues(one.candidates, one.values is not None and len(one.values) == 2)
        for feature, one in seen.items()
        if one.candidates
    }


# --- second pass: how many rows have another one -------------------------------------------------

_Key = tuple[int, float, bool]  # feature, value, whether it is one of two
_Counts = dict[_Key, IntArray]  # rows by cell


def _counted(
    parts: ContextParts, candidates: Mapping[int, CommonValues], n_cells: int
) -> tuple[_Counts, IntArray]:
    """How many rows of each cell have each candidate value, and how many rows there are."""
    keys = [
        (feature, value, two) for feature, (values, two) in candidates.items() for value in values
    ]
    counts = np.zeros((len(keys) + 1, n_cells), np.int64)
    for found in totals_of(parts(), partial(_counts_of, keys, n_cells)):
        counts += found
    return dict(zip(keys, counts, strict=False)), counts[-1]


def _counts_of(
    keys: Sequence[_Key], n_cells: int, parts: Iterable[ContextPart]
) -> IntArray:  # (n_keys + 1, n_cells)
    """Rows of each cell with each of these values, and last all rows."""
    counts = np.zeros((len(keys) + 1, n_cells), np.int64)
    for contexts, cells in parts:
        counts[-1] += np.bincount(cells, minlength=n_cells)
        for found, (feature, value, _) in zip(counts, keys, strict=False):
            found += np.bincount(cells[contexts[:, feature] == value], minlength=n_cells)
    return counts


def _rare(counts: _Counts, in_cell: IntArray, minimum: int) -> Iterator[RareValues]:
    pairs: dict[int, list[tuple[float, IntArray]]] = {}
    for (feature, value, two), found in counts.items():
        if two:
            pairs.setdefault(feature, []).append((value, found))
        elif 2 * found.sum() > in_cell.sum():
            common = np.full(len(in_cell), value)
            yield from _masked(feature, common, in_cell - found, minimum)
    for feature, ((low, n_low), (high, n_high)) in pairs.items():
        mostly_high = 2 * n_high > in_cell
        common = np.where(mostly_high, high, low)
        yield from _masked(feature, common, np.where(mostly_high, n_low, n_high), minimum)


def _masked(
    feature: int, common: FloatArray, others: IntArray, minimum: int
) -> Iterator[RareValues]:
    masked = cells_to_mask(others, minimum)
    if masked.any():
        yield RareValues(feature=feature, common=common, masked=masked)


def cells_to_mask(counts: IntArray, minimum: int) -> BoolArray:  # (n_cells,)
    """Cells with a few such rows, and the smallest others until the total is enough."""
    chosen: BoolArray = (counts > 0) & (counts < minimum)
    for cell in np.argsort(np.where(counts > 0, counts, np.iinfo(np.int64).max), kind="stable"):
        if not 0 < counts[chosen].sum() < minimum:
            break
        chosen[cell] = counts[cell] > 0
    return chosen
