"""Draws for the rows, or persons, of a private study: they follow from content, not from position.

A row is known by a keyed hash of all that it holds, a person by the sum of the hashes of its rows.
Equal ones are numbered: first copy, second copy, and so on. So the same rows in another order have
the same draws, and one row more or less changes the draw of no other.

Without the key, nobody can look for other rows with the same hashes or sums (Clarke et al. 2003,
MSet-Add-Hash): two that differ agree with a probability of 2⁻¹²⁸.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import BoolArray, IntArray
from fedopl.client.disk.disk_array import slices
from fedopl.client.disk.external_sort import (
    LARGEST,
    RECORDS_PER_BUCKET,
    RecordOrder,
    Records,
    Sorter,
    SortKeys,
    sorted_records,
    sorting_folder,
)
from fedopl.client.table.logged_data import ROW_ARRAYS, LoggedData, folder_of

WORDS = ("first", "second")  # the two halves of a hash
UNIT = np.dtype([("first", "<u8"), ("second", "<u8"), ("unit", "<u8")])
ROW_OF_PERSON = np.dtype([("person", "<u8"), *UNIT.descr[:2], ("row", "<u8")])


@dataclass(frozen=True, eq=False, kw_only=True)
class UnitDraws:
    """What is drawn for each unit, a row or a person."""

    fingerprint: str  # a hash of all units, in no order
    is_held_out: BoolArray  # (n_units,)
    rank: IntArray  # (n_units,), by hash: the order in which further draws are given out
    is_used: BoolArray  # (n_rows,), all rows, or a few of each person


def drawn_by_content(
    data: LoggedData, key: bytes, share: float, most: int | None, at_once: int
) -> UnitDraws:
    """Draws by this key for each row, or for each person if only its `most` rows are used.

    A share of them is held out. Rows on disk are read `at_once`, and sorted in files.
    """
    n_units = data.n_rows if most is None else data.n_groups
    is_used, is_held_out = np.ones(data.n_rows, bool), np.zeros(n_units, bool)
    units = _rows(data, key, at_once)
    if most is not None:
        units = _persons(data, units, n_units, most, at_once, is_used)
    rank = np.zeros(n_units, np.min_scalar_type(n_units))
    fingerprint, n_so_far = hashlib.sha256(), 0
    for records, copies in _numbered(_ascending(data, units, UNIT, WORDS), WORDS):
        hashes, own = _words(records), records["unit"]
        fingerprint.update(hashes.tobytes())
        draws = _hashed(np.column_stack([hashes, copies.astype(np.uint64)]), key, b"held out")
        is_held_out[own] = draws[:, 0] < np.uint64(share * 2**64)
        rank[own] = np.arange(n_so_far, n_so_far := n_so_far + len(own))
    return UnitDraws(
        fingerprint=fingerprint.hexdigest(), is_held_out=is_held_out, rank=rank, is_used=is_used
    )


def _rows(data: LoggedData, key: bytes, at_once: int) -> Iterator[Records]:
    """The hash of each row, with its place."""
    for rows in slices(data.n_rows, at_once):
        yield _records(
            UNIT, _row_hashes(data.part(rows), key), unit=np.arange(*rows.indices(rows.stop))
        )


def _row_hashes(part: LoggedData, key: bytes) -> SortKeys:  # (n_rows, 2)
    # Not groups: their codes depend on which rows there are.
    columns = [getattr(part, name) for name in ROW_ARRAYS if name != "groups"]
    numbers = np.column_stack([own for own in columns if own is not None]).astype(np.float64)
    return _hashed(numbers, key, b"row")


def _persons(
    data: LoggedData,
    hashed: Iterable[Records],
    n_persons: int,
    most: int,
    at_once: int,
    is_used: BoolArray,
) -> Iterator[Records]:
    """The sum of the hashes of each person's rows; those with the smallest hashes are used."""
    groups: Any = data.groups

    def rows() -> Iterator[Records]:
        for records, part in zip(hashed, slices(data.n_rows, at_once), strict=True):
            yield _records(ROW_OF_PERSON, _words(records), person=groups[part], row=records["unit"])

    sums = np.zeros((n_persons, 2), np.uint64)
    by_person = _ascending(data, rows(), ROW_OF_PERSON, ("person", *WORDS), n_persons - 1)
    for records, places in _numbered(by_person, ("person",)):
        is_used[records["row"]] = places < most
        np.add.at(sums, records["person"], _words(records))  # each half modulo 2⁶⁴
    for some in slices(n_persons, at_once):
        persons = some.start + np.flatnonzero(sums[some].any(axis=1))  # those with rows
        yield _records(UNIT, sums[persons], unit=persons)


def _records(dtype: np.dtype[Any], hashes: SortKeys, **fields: NDArray[Any]) -> Records:
    found = np.empty(len(hashes), dtype)
    for name, values in {**dict(zip(WORDS, hashes.T, strict=True)), **fields}.items():
        found[name] = values
    return found


def _words(records: Records) -> SortKeys:  # (n_records, 2)
    return np.column_stack([records[name] for name in WORDS])


def _hashed(numbers: NDArray[Any], key: bytes, purpose: bytes) -> SortKeys:  # (n_rows, 2)
    """A keyed hash of each row of numbers."""
    keyed = hashlib.blake2b(digest_size=16, key=key, person=purpose)

    def digest(row: Any) -> bytes:
        own = keyed.copy()
        own.update(row)
        return own.digest()

    content = np.ascontiguousarray(numbers)
    rows = content.view(np.dtype((np.void, content.itemsize * content.shape[1]))).ravel().tolist()
    return np.frombuffer(b"".join(map(digest, rows)), "<u8").reshape(-1, 2)


def _ascending(
    data: LoggedData,
    parts: Iterable[Records],
    dtype: np.dtype[Any],
    by: tuple[str, ...],
    most: int = LARGEST,
) -> Iterator[Records]:
    """All records in this order; in files beside the rows if those are on disk.

    `most` is the largest possible value of the first key.
    """
    if not data.is_on_disk:
        yield sorted_records(np.concatenate(list(parts)), by)
        return
    n_bytes = 2 * data.n_rows * dtype.itemsize
    with sorting_folder(folder_of(data), n_bytes, "sorting rows") as own:
        order = RecordOrder(dtype, by, RECORDS_PER_BUCKET)
        sorter = Sorter(own / "records", order, data.n_rows, between=(0, most))
        for records in parts:
            sorter.add(records)
        yield from sorter.ascending()


def _numbered(pieces: Iterable[Records], by: tuple[str, ...]) -> Iterator[tuple[Records, IntArray]]:
    """Sorted records, each with the number of equal ones before it, in whatever piece."""
    last, n_last = None, 0
    for records in pieces:
        keys = np.column_stack([records[name] for name in by])
        starts = np.flatnonzero(np.r_[True, (keys[1:] != keys[:-1]).any(axis=1)])
        lengths = np.diff(starts, append=len(keys))
        before = np.arange(len(keys)) - np.repeat(starts, lengths)
        if last is not None and (keys[0] == last).all():
            before[: lengths[0]] += n_last
        last, n_last = keys[-1], int(before[-1]) + 1
        yield records, before
