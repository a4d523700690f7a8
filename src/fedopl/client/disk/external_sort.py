"""Rows are dealt like cards, where there are more of them than memory holds.

What is dealt is a record for each row: its key, its number and its stratum. Records are sorted in
files: thrown into buckets by their leading bits, and each bucket sorted in memory. Hashes fill
buckets evenly, but rows that agree have the same key; a bucket that grew too large is thrown into
buckets again, by the bits in which its keys differ, and by rows where they do not.
"""

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import IntArray
from fedopl.client.disk.disk_array import DiskArray, check_space, remove_abandoned, slices
from fedopl.client.disk.prefetch import prefetched

Keys = NDArray[np.uint64]
Records = NDArray[np.void]

LARGEST = 2**64 - 1
MOST_BUCKETS = 256
RECORDS_PER_BUCKET = 1 << 20
# A row that is to be set apart or not, by `key`, and then dealt by the key `later`.
WAITING = np.dtype([("key", "<u8"), ("row", "<u8"), ("stratum", "<u2"), ("later", "<u8")])
# A row that is to be dealt.
STAYING = np.dtype([("key", "<u8"), ("row", "<u8"), ("stratum", "<u2")])
# A row with its turn.
DEALT = np.dtype([("row", "<u8"), ("turn", "<i8")])
APART = -1
UNFINISHED = ".dealing-"
# Of the files at their largest, when half of the rows are in buckets of one kind already.
BYTES_PER_ROW = 2 * WAITING.itemsize


def in_order(keys: Keys) -> IntArray:
    """The order that sorts keys; equal ones stay in the order in which they came."""
    order = np.argsort(keys)
    ascending = keys[order]
    rises = ascending[1:] != ascending[:-1]
    if rises.all():
        return order
    # Faster than a stable sort of the keys, of which there is none by radix for 64 bits.
    runs = np.concatenate([[0], np.cumsum(rises)]) * len(keys)
    stable: IntArray = np.sort(runs + order) - runs
    return stable


def by_stratum(keys: Keys, strata: NDArray[Any]) -> IntArray:
    """The order that sorts by stratum, then by key, then by position."""
    order = _in_one_sort(keys, strata)
    if order is None:
        order = in_order(keys)
        order = order[np.argsort(strata[order].astype(np.uint16), kind="stable")]
    return order


def _in_one_sort(keys: Keys, strata: NDArray[Any]) -> IntArray | None:
    """The same by sorting numbers instead of positions, which is much faster.

    Each number has a stratum, the leading bits of a key, and a position. If the bits of a key that
    are left out would have mattered, which is rare, there is no such order.
    """
    for_stratum, for_position = int(strata.max()).bit_length(), (len(keys) - 1).bit_length()
    left_out, behind = np.uint64(for_stratum + for_position), np.uint64(for_position)
    packed = keys >> left_out << behind
    packed |= np.arange(len(keys), dtype=np.uint64)
    if for_stratum:
        packed |= strata.astype(np.uint64) << np.uint64(64 - for_stratum)
    packed.sort()
    order = (packed & np.uint64((1 << for_position) - 1)).astype(np.int64)
    packed >>= behind
    alike = np.flatnonzero(packed[1:] == packed[:-1])
    return None if (keys[order[alike]] > keys[order[alike + 1]]).any() else order


def scramble(keys: Keys) -> Keys:
    """The finaliser of SplitMix64 (Steele, Lea & Flood 2014)."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


def dealt_before(counts: IntArray, smallest: Keys) -> IntArray:  # both (n_strata,)
    """How many items are dealt before those of each stratum: the largest stratum goes first."""
    turns = np.lexsort((smallest, -counts))
    before = np.empty_like(counts)
    before[turns] = np.cumsum(counts[turns]) - counts[turns]
    return before


# --- sorting in files ------------------------------------------------------------------------


@dataclass(eq=False)
class _Bucket:
    """Records in a file, and between which values they lie."""

    path: Path
    n_records: int = 0
    lowest: dict[str, int] = field(default_factory=dict)
    highest: dict[str, int] = field(default_factory=dict)

    def add(self, records: Records, by: tuple[str, ...]) -> None:
        # Opened for each piece, as there may be more buckets than files may be open.
        with self.path.open("ab") as file:
            records.tofile(file)
        self.n_records += len(records)
        for name in by:
            low, high = int(records[name].min()), int(records[name].max())
            self.lowest[name] = min(low, self.lowest.get(name, low))
            self.highest[name] = max(high, self.highest.get(name, high))


class Sorter:
    """Sorts records in files, by each of some fields of whole numbers, the first foremost."""

    def __init__(
        self,
        folder: Path,
        kind: np.dtype[Any],
        n_records: int,
        by: tuple[str, ...],
        *,
        between: tuple[int, int] = (0, LARGEST),
        at_most: int = RECORDS_PER_BUCKET,
    ) -> None:
        folder.mkdir(mode=0o700)
        self._folder, self._kind, self._by, self._at_most = folder, kind, by, at_most
        low, high = between
        n_wanted = min(MOST_BUCKETS, max(2, -(-2 * n_records // at_most)))
        shift = max(0, (high - low).bit_length() - (n_wanted - 1).bit_length())
        self._low, self._shift = np.uint64(low), np.uint64(shift)
        self._buckets = [
            _Bucket(folder / str(place)) for place in range(((high - low) >> shift) + 1)
        ]

    def add(self, records: Records) -> None:
        """Throw them into their buckets."""
        places = ((records[self._by[0]] - self._low) >> self._shift).astype(np.uint16)
        order = np.argsort(places, kind="stable")
        edges = np.searchsorted(places[order], np.arange(len(self._buckets) + 1))
        ordered = records.take(order)
        for place in np.flatnonzero(np.diff(edges)):
            self._buckets[place].add(ordered[edges[place] : edges[place + 1]], self._by)

    def ascending(self) -> Iterator[Records]:
        """All records in order, a bucket at a time; each is removed from the disk then."""
        filled = [bucket for bucket in self._buckets if bucket.n_records]
        for bucket, parts in zip(filled, prefetched(self._ascending, filled), strict=True):
            yield from parts
            bucket.path.unlink()
        self._folder.rmdir()

    def _ascending(self, bucket: _Bucket) -> Iterable[Records]:
        records = DiskArray(bucket.path, (bucket.n_records,), self._kind)
        if bucket.n_records <= self._at_most:
            return [_sorted(records[:], self._by)]
        return self._thrown_again(bucket, records)

    def _thrown_again(self, bucket: _Bucket, records: DiskArray) -> Iterator[Records]:
        by = self._by
        while by and bucket.lowest[by[0]] == bucket.highest[by[0]]:
            by = by[1:]
        if not by:
            yield from (records[rows] for rows in slices(bucket.n_records, self._at_most))
            return
        again = Sorter(
            bucket.path.with_name(f"{bucket.path.name} again"),
            self._kind,
            bucket.n_records,
            by,
            between=(bucket.lowest[by[0]], bucket.highest[by[0]]),
            at_most=self._at_most,
        )
        for rows in slices(bucket.n_records):
            again.add(records[rows])
        yield from again.ascending()


def _sorted(records: Records, by: tuple[str, ...]) -> Records:
    values = np.ascontiguousarray(records[by[0]])
    order = np.argsort(values)
    ascending = values[order]
    if len(by) == 1 or (ascending[1:] != ascending[:-1]).all():
        return records.take(order)
    records = _sorted(records, by[1:])
    return records.take(in_order(np.ascontiguousarray(records[by[0]])))


# --- dealing in files ------------------------------------------------------------------------


def turns_of_rows(
    records: Iterable[Records],
    counts: IntArray,
    quotas: IntArray,
    folder: Path,
    at_most: int = RECORDS_PER_BUCKET,
) -> Iterator[IntArray]:
    """Each row's turn in the order of the rows, part by part, and −1 for rows set apart.

    Of each stratum, of which there are so many rows, a quota is set apart: those with the smallest
    keys. The others take turns by their later keys, one stratum after the other.
    """
    n_rows = int(counts.sum())
    check_space(folder, n_rows * BYTES_PER_ROW, "dealing rows to folds")
    remove_abandoned(folder, UNFINISHED)
    with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=folder) as own:
        files = _Files(Path(own), n_rows, at_most)
        done = files.sorter("done", DEALT, ("row",), between=(0, n_rows - 1))
        rest = files.sorter("rest", STAYING, ("key", "row"))
        smallest = np.full(len(counts), LARGEST, np.uint64)
        for waiting in _set_apart(records, quotas, files, done):
            staying = np.empty(len(waiting), STAYING)
            staying["key"], staying["row"] = waiting["later"], waiting["row"]
            staying["stratum"] = waiting["stratum"]
            np.minimum.at(smallest, staying["stratum"], staying["key"])
            rest.add(staying)
        next_turn = dealt_before(counts - quotas, smallest)
        for staying in rest.ascending():
            done.add(_dealt(staying["row"], _places(staying["stratum"], next_turn)))
        for dealt in done.ascending():
            yield np.ascontiguousarray(dealt["turn"])


@dataclass(frozen=True)
class _Files:
    folder: Path
    n_rows: int
    at_most: int

    def sorter(
        self,
        name: str,
        kind: np.dtype[Any],
        by: tuple[str, ...],
        between: tuple[int, int] = (0, LARGEST),
    ) -> Sorter:
        """For all rows, in files of this name."""
        folder = self.folder / name
        return Sorter(folder, kind, self.n_rows, by, between=between, at_most=self.at_most)


def _set_apart(
    records: Iterable[Records], quotas: IntArray, files: _Files, done: Sorter
) -> Iterator[Records]:
    """The rows that stay; those set apart are done."""
    if not quotas.any():
        yield from records
        return
    given = files.sorter("given", WAITING, ("key", "row"))
    for waiting in records:
        given.add(waiting)
    told = files.sorter("told apart", WAITING, ("key", "row"))
    repeats = _Repeats(len(quotas))
    for waiting in given.ascending():
        again = repeats.before(waiting["key"], waiting["stratum"])
        repeated = again > 0
        if repeated.any():
            waiting["key"][repeated] = scramble(waiting["key"][repeated] + again[repeated])
        told.add(waiting)
    next_place = np.zeros(len(quotas), np.int64)
    for waiting in told.ascending():
        apart = _places(waiting["stratum"], next_place) < quotas[waiting["stratum"]]
        done.add(_dealt(waiting["row"].compress(apart), np.full(apart.sum(), APART)))
        yield waiting.compress(~apart)


class _Repeats:
    """How often a key came before in its stratum, wherever the records are cut into parts."""

    def __init__(self, n_strata: int) -> None:
        self._last: np.uint64 | None = None
        self._counts = np.zeros(n_strata, np.uint64)

    def before(self, keys: Keys, strata: NDArray[np.uint16]) -> Keys:
        """Of each record, of which all are in the order of their keys."""
        again = np.zeros(len(keys), np.uint64)
        if (keys[1:] == keys[:-1]).any():
            order = np.argsort(strata, kind="stable")
            key, stratum = keys[order], strata[order]
            new = (key[1:] != key[:-1]) | (stratum[1:] != stratum[:-1])
            first = np.flatnonzero(np.concatenate([[True], new]))
            again[order] = np.arange(len(keys)) - np.repeat(
                first, np.diff(np.append(first, len(keys)))
            )
        if keys[0] == self._last:
            own = slice(0, int(np.searchsorted(keys, keys[0], "right")))
            again[own] += self._counts[strata[own]]
        if keys[-1] != self._last:
            self._last, self._counts[:] = keys[-1], 0
        own = slice(int(np.searchsorted(keys, keys[-1])), None)
        self._counts += np.bincount(strata[own], minlength=len(self._counts)).astype(np.uint64)
        return again


def _places(strata: NDArray[np.uint16], next_place: IntArray) -> IntArray:
    """Each record's place in its stratum; `next_place` moves on to that of the records to come."""
    order = np.argsort(strata, kind="stable")
    counts = np.bincount(strata, minlength=len(next_place))
    starts = np.cumsum(counts) - counts
    places = np.empty(len(strata), np.int64)
    places[order] = np.arange(len(strata)) + np.repeat(next_place - starts, counts)
    next_place += counts
    return places


def _dealt(rows: NDArray[np.uint64], turns: IntArray) -> Records:
    dealt = np.empty(len(rows), DEALT)
    dealt["row"], dealt["turn"] = rows, turns
    return dealt
