"""External sort of fixed-width records: a bucket sort in files, for more records than memory holds.

Records are distributed to buckets by the leading bits of their first key. Each bucket is sorted in
memory. Keys that are hashes fill buckets evenly, but equal rows have equal keys. A bucket that is
too large is distributed again, by the bits in which its keys differ, or by the next key.
"""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import IntArray
from fedopl.client.disk.disk_array import DiskArray, check_space, remove_abandoned, slices
from fedopl.client.disk.prefetch import prefetched

SortKeys = NDArray[np.uint64]
Records = NDArray[np.void]

LARGEST = 2**64 - 1
MOST_BUCKETS = 256
RECORDS_PER_BUCKET = 1 << 20
_UNFINISHED = ".sorting-"


@contextmanager
def sorting_folder(beside: Path, n_bytes: int, what: str) -> Iterator[Path]:
    """A folder for files of so many bytes, without what killed processes left; removed after."""
    check_space(beside, n_bytes, what)
    remove_abandoned(beside, _UNFINISHED)
    with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=beside) as own:
        yield Path(own)


def stable_order(keys: SortKeys) -> IntArray:
    """The order that sorts keys; equal keys stay in the order in which they came."""
    order = np.argsort(keys)
    ascending = keys[order]
    rises = ascending[1:] != ascending[:-1]
    if rises.all():
        return order
    # Faster than a stable sort of the keys: numpy has no radix sort for 64 bits.
    runs = np.concatenate([[0], np.cumsum(rises)]) * len(keys)
    return np.asarray(np.sort(runs + order) - runs)


@dataclass(frozen=True)
class RecordOrder:
    """The type of records, and the whole-number fields to sort by, the most important first."""

    dtype: np.dtype[Any]
    by: tuple[str, ...]
    at_most: int = RECORDS_PER_BUCKET  # the most records to sort in memory


@dataclass(eq=False)
class _Bucket:
    """Records in a file, and the range of each of their keys."""

    path: Path
    n_records: int = 0
    lowest: dict[str, int] = field(default_factory=dict)
    highest: dict[str, int] = field(default_factory=dict)

    def add(self, records: Records, by: tuple[str, ...]) -> None:
        # Opened for each piece, because there may be more buckets than files can be open.
        with self.path.open("ab") as file:
            records.tofile(file)
        self.n_records += len(records)
        for name in by:
            low, high = int(records[name].min()), int(records[name].max())
            self.lowest[name] = min(low, self.lowest.get(name, low))
            self.highest[name] = max(high, self.highest.get(name, high))


class Sorter:
    """Sorts records in files of a folder of its own, which is removed afterwards.

    `between` has the smallest and the largest possible value of the first key.
    """

    def __init__(
        self,
        folder: Path,
        order: RecordOrder,
        n_records: int,
        between: tuple[int, int] = (0, LARGEST),
    ) -> None:
        folder.mkdir(mode=0o700)
        self._folder, self._order = folder, order
        low, high = between
        # Half full on average, so that an uneven spread of keys rarely overfills a bucket.
        n_wanted = min(MOST_BUCKETS, max(2, -(-2 * n_records // order.at_most)))
        shift = max(0, (high - low).bit_length() - (n_wanted - 1).bit_length())
        self._low, self._shift = np.uint64(low), np.uint64(shift)
        self._buckets = [
            _Bucket(folder / str(place)) for place in range(((high - low) >> shift) + 1)
        ]

    def add(self, records: Records) -> None:
        """Distribute these records to their buckets."""
        by = self._order.by
        places = ((records[by[0]] - self._low) >> self._shift).astype(np.uint16)
        order = np.argsort(places, kind="stable")
        edges = np.searchsorted(places[order], np.arange(len(self._buckets) + 1))
        ordered = records.take(order)
        for place in np.flatnonzero(np.diff(edges)):
            self._buckets[place].add(ordered[edges[place] : edges[place + 1]], by)

    def ascending(self) -> Iterator[Records]:
        """All records in order, a bucket at a time; each bucket is then removed from the disk."""
        filled = [bucket for bucket in self._buckets if bucket.n_records]
        for bucket, parts in zip(filled, prefetched(self._ascending, filled), strict=True):
            yield from parts
            bucket.path.unlink()  # at once, because a table may nearly fill the disk
        self._folder.rmdir()

    def _ascending(self, bucket: _Bucket) -> Iterable[Records]:
        records = DiskArray(bucket.path, (bucket.n_records,), self._order.dtype)
        if bucket.n_records <= self._order.at_most:
            return [sorted_records(records[:], self._order.by)]
        return self._distributed_again(bucket, records)

    def _distributed_again(self, bucket: _Bucket, records: DiskArray) -> Iterator[Records]:
        by = self._order.by
        while by and bucket.lowest[by[0]] == bucket.highest[by[0]]:
            by = by[1:]
        if not by:
            yield from (records[rows] for rows in slices(bucket.n_records, self._order.at_most))
            return
        again = Sorter(
            bucket.path.with_name(f"{bucket.path.name} again"),
            replace(self._order, by=by),
            bucket.n_records,
            (bucket.lowest[by[0]], bucket.highest[by[0]]),
        )
        for rows in slices(bucket.n_records):
            again.add(records[rows])
        yield from again.ascending()


def sorted_records(records: Records, by: tuple[str, ...]) -> Records:
    """Records in memory by these whole-number fields, the most important first."""
    values = np.ascontiguousarray(records[by[0]])
    order = np.argsort(values)
    ascending = values[order]
    if len(by) == 1 or (ascending[1:] != ascending[:-1]).all():
        return records.take(order)
    # First by the later keys. A stable sort by the first key keeps that order among equal records.
    records = sorted_records(records, by[1:])
    return records.take(stable_order(np.ascontiguousarray(records[by[0]])))
