"""Rule *cell*: for terms, a value that all but a few rows share is held for all rows.

If 1 to 4 rows of a client have another value of a term than all others (a flag, a missing
indicator, a hinge, a product, a jump), sums with this term are sums over those few rows. So the
term has the common value in all rows of the client, training or held out, in every fold.

Bins with fewer rows than `minimum_cell` are merged with a neighbour, once for each column, from the
counts of all rows there. Sums over pairs of merged bins leave whole.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.disk.passes import totals_of

# The terms of some rows; called once for each pass.
_Parts = Callable[[], Iterable[FloatArray]]


@dataclass(frozen=True)
class HeldValues:
    """The value at which each of some columns is held."""

    values: Mapping[int, float]

    def __bool__(self) -> bool:
        return bool(self.values)

    def __call__(self, columns: FloatArray) -> FloatArray:  # (n_rows, n_columns)
        """The columns with these values; the same array if none is held."""
        if not self.values:
            return columns
        held = np.array(columns)
        for place, value in self.values.items():
            held[:, place] = value
        return held


NOTHING_HELD = HeldValues({})


def held_values(parts: _Parts, minimum: int) -> HeldValues:
    """The columns that fewer than `minimum` rows, but some, differ in from all others; a pass.

    Of 2·`minimum` − 1 rows, most have a value that fewer than `minimum` rows differ from, so their
    median is that value.
    """
    if minimum < 2:
        return NOTHING_HELD
    first = _first_rows(parts(), 2 * minimum - 1)
    if not len(first):
        return NOTHING_HELD
    common = np.sort(first, axis=0)[len(first) // 2]
    others = sum(totals_of(parts(), partial(_differing, common)), np.zeros(len(common), np.int64))
    held = np.flatnonzero((others > 0) & (others < minimum))
    return HeldValues({place: float(common[place]) for place in held.tolist()})


def _first_rows(parts: Iterable[FloatArray], n_rows: int) -> FloatArray:  # (n_rows, n_columns)
    """So many rows, however few a part has."""
    found: list[FloatArray] = []
    for part in parts:
        found.append(part[:n_rows])
        n_rows -= len(found[-1])
        if not n_rows:
            break
    return np.concatenate(found) if found else np.empty((0, 0))


def _differing(common: FloatArray, parts: Iterable[FloatArray]) -> IntArray:  # (n_columns,)
    """The rows that differ from the common value, by column."""
    counts = ((columns != common).sum(axis=0) for columns in parts)
    return sum(counts, np.zeros(len(common), np.int64))


def merged_bins(counts: IntArray, minimum: int) -> IntArray:  # (n_bins,)
    """For each bin, the bin that its rows count for; each of these has enough rows, or none.

    Bins are joined from the first on until they have enough rows; the last ones, if too few, join
    those before. The rows of all count for the bin among them that has most.
    """
    places = np.arange(len(counts))
    if minimum < 2 or not ((counts > 0) & (counts < minimum)).any():
        return places
    runs, begun, total = [], 0, 0
    for place, count in enumerate(counts.tolist()):
        total += count
        if total >= minimum:
            runs.append((begun, place + 1))
            begun, total = place + 1, 0
    if total and runs:
        runs[-1] = (runs[-1][0], len(counts))
    elif total:
        runs.append((0, len(counts)))
    onto = places.copy()
    for start, stop in runs:
        onto[start:stop] = start + int(np.argmax(counts[start:stop]))
    return onto
