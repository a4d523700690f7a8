"""The turn in which each row is assigned to a fold: round robin within each stratum.

Every row has a key, which is a hash, and a stratum, which is its action. In each stratum, the rows
with the smallest evaluation keys are held out. The others take turns in the order of their fold
keys, one stratum after the other. The fold is the turn modulo the number of folds.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedopl.base.arrays import BoolArray, IntArray
from fedopl.client.disclosure.held_values import NOTHING_HELD, HeldValues
from fedopl.client.disk.disk_array import cached_array, slices
from fedopl.client.disk.external_sort import (
    LARGEST,
    RECORDS_PER_BUCKET,
    RecordOrder,
    Records,
    Sorter,
    SortKeys,
    sorting_folder,
    stable_order,
)
from fedopl.client.disk.prefetch import prefetched
from fedopl.client.rows.row_keys import row_keys, scramble
from fedopl.client.table.logged_data import LoggedData, folder_of

# A row that may be held out; `key` is its evaluation key.
CANDIDATE = np.dtype([("key", "<u8"), ("row", "<u8"), ("stratum", "<u2"), ("fold_key", "<u8")])
# A training row; `key` is its fold key.
TRAINING = np.dtype([("key", "<u8"), ("row", "<u8"), ("stratum", "<u2")])
TURN = np.dtype([("row", "<u8"), ("turn", "<i8")])
HELD_OUT = -1  # instead of a turn
# The files at their largest, when half of the rows are already in buckets of the next kind.
BYTES_PER_ROW = 2 * CANDIDATE.itemsize
# The bytes of contexts that are read at a time.
BYTES_PER_SLICE = 1 << 24


def by_stratum(keys: SortKeys, strata: NDArray[Any]) -> IntArray:
    """The order that sorts by stratum, then by key, then by position."""
    order = _in_one_sort(keys, strata)
    if order is None:
        order = stable_order(keys)
        order = order[np.argsort(strata[order].astype(np.uint16), kind="stable")]
    return order


def _in_one_sort(keys: SortKeys, strata: NDArray[Any]) -> IntArray | None:
    """The same by sorting numbers instead of positions, which is much faster.

    Each number packs a stratum, the leading bits of a key, and a position. None if the bits that
    are left out would have mattered, which is rare.
    """
    for_stratum, for_position = int(strata.max()).bit_length(), (len(keys) - 1).bit_length()
    left_out, behind = np.uint64(for_stratum + for_position), np.uint64(for_position)
    packed = keys >> left_out << behind
    packed |= np.arange(len(keys), dtype=np.uint64)
    if for_stratum:
        packed |= strata.astype(np.uint64) << np.uint64(64 - for_stratum)
    packed.sort()
    order = (packed & np.uint64((1 << for_position) - 1)).view(np.int64)
    packed >>= behind
    are_alike = packed[1:] == packed[:-1]
    if not np.count_nonzero(are_alike):
        return order
    alike = np.flatnonzero(are_alike)
    return None if (keys[order[alike]] > keys[order[alike + 1]]).any() else order


def first_turns(counts: IntArray, smallest: SortKeys) -> IntArray:  # (n_strata,), as both arguments
    """The first turn of each stratum: the largest stratum goes first, whatever its code."""
    order = np.lexsort((smallest, -counts))
    first = np.empty_like(counts)
    counts = counts[order]
    first[order] = counts.cumsum() - counts
    return first


# --- on disk ---------------------------------------------------------------------------------


def folds_on_disk(
    data: LoggedData,
    n_folds: tuple[int, int],
    share: float,
    quotas: IntArray,
    seed: int,
    held: HeldValues = NOTHING_HELD,
) -> Any:  # (n_rows,)
    """The fold of each row, the number of folds for held-out rows: as for rows in memory.

    Each action's quota of rows is held out. Quotas follow from the share. `n_folds` has the number
    of folds, and how many of them have rows.
    """
    number, used = n_folds
    # Rows take the same turns, whatever the number of folds.
    made = turns_on_disk(_records(data, seed, held), data.rows_per_action, quotas, folder_of(data))
    as_held = "".join(f" {place}={value!r}" for place, value in held.values.items())
    turns = cached_beside(data, f"turns {share!r} {seed}{as_held}", np.int64, made)

    def folds(rows: slice) -> NDArray[np.uint16]:
        own = turns[rows]
        return np.where(own == HELD_OUT, number, own % used).astype(np.uint16)

    every = map(folds, slices(data.n_rows))
    return cached_beside(data, f"folds {number} {used} {share!r} {seed}{as_held}", np.uint16, every)


def cached_beside(
    data: LoggedData, what: str, stored: DTypeLike, made: Iterator[NDArray[Any]]
) -> Any:
    """An array in a file beside the rows, made once; typed Any, as it replaces one in memory."""
    arrays: list[Any] = [data.contexts, data.actions, data.groups]
    rows = [f"{array.path} {array.digest}" for array in arrays if array is not None]
    name = hashlib.sha256(" ".join([what, *rows]).encode()).hexdigest()[:32]
    path = folder_of(data) / f"{what.split()[0]}-{name}"
    return cached_array(path, data.n_rows, stored, made)


def _records(data: LoggedData, seed: int, held: HeldValues) -> Iterator[Records]:
    """The fields of each row that the external sort needs."""

    def read(rows: slice) -> Records:
        key, fold_key = row_keys(held(data.contexts[rows]), seed, ("evaluation", "folds"))
        places, strata = np.arange(rows.start, rows.stop), data.actions[rows]
        return records_of(CANDIDATE, key=key, row=places, stratum=strata, fold_key=fold_key)

    n_at_once = max(1, BYTES_PER_SLICE // (8 * data.n_features))
    return prefetched(read, slices(data.n_rows, n_at_once))


def turns_on_disk(
    candidates: Iterable[Records], counts: IntArray, quotas: IntArray, folder: Path
) -> Iterator[IntArray]:
    """Each row's turn in the order of the rows, in parts; `HELD_OUT` for evaluation rows.

    `counts` has the rows of each stratum, `quotas` the number of them that are held out.
    """
    n_rows = int(counts.sum())
    with sorting_folder(folder, n_rows * BYTES_PER_ROW, "dealing rows to folds") as own:

        def sorter(name: str, dtype: np.dtype[Any], *by: str) -> Sorter:
            return Sorter(own / name, RecordOrder(dtype, by, RECORDS_PER_BUCKET), n_rows)

        by_row = RecordOrder(TURN, ("row",), RECORDS_PER_BUCKET)
        done = Sorter(own / "turns", by_row, n_rows, between=(0, n_rows - 1))
        training = sorter("training", TRAINING, "key", "row")
        smallest = np.full(len(counts), LARGEST, np.uint64)
        for kept in _hold_out(candidates, quotas, sorter, done):
            keys, strata = kept["fold_key"], kept["stratum"]
            np.minimum.at(smallest, strata, keys)
            training.add(records_of(TRAINING, key=keys, row=kept["row"], stratum=strata))
        next_turn = first_turns(counts - quotas, smallest)
        for records in training.ascending():
            turns = _places(records["stratum"], next_turn)
            done.add(records_of(TURN, row=records["row"], turn=turns))
        for records in done.ascending():
            yield np.ascontiguousarray(records["turn"])


def _hold_out(
    candidates: Iterable[Records], quotas: IntArray, sorter: Callable[..., Sorter], done: Sorter
) -> Iterator[Records]:
    """The training rows; held-out rows are added to `done`."""
    if not quotas.any():
        yield from candidates
        return
    given = sorter("candidates", CANDIDATE, "key", "stratum", "row")
    for records in candidates:
        given.add(records)
    # Rows with equal keys get keys of their own. Otherwise they would all be held out together.
    unique = sorter("ties broken", CANDIDATE, "key", "row")
    for records, again in numbered(given.ascending(), ("key", "stratum")):
        repeated = again > 0
        if repeated.any():
            more = again[repeated].astype(np.uint64)
            records["key"][repeated] = scramble(records["key"][repeated] + more)
        unique.add(records)
    next_place = np.zeros(len(quotas), np.int64)
    for records in unique.ascending():
        held_out = _places(records["stratum"], next_place) < quotas[records["stratum"]]
        rows = records["row"].compress(held_out)
        done.add(records_of(TURN, row=rows, turn=np.full(len(rows), HELD_OUT)))
        yield records.compress(~held_out)


def _places(strata: NDArray[np.uint16], next_place: IntArray) -> IntArray:
    """Each record's place in its stratum; `next_place` is advanced past these records."""
    order = np.argsort(strata, kind="stable")
    counts = np.bincount(strata, minlength=len(next_place))
    starts = np.cumsum(counts) - counts
    places = np.empty(len(strata), np.int64)
    places[order] = np.arange(len(strata)) + np.repeat(next_place - starts, counts)
    next_place += counts
    return places


# --- records ---------------------------------------------------------------------------------


def records_of(dtype: np.dtype[Any], **fields: NDArray[Any]) -> Records:
    """Records with these fields, (n_records,) each."""
    found = np.empty(len(next(iter(fields.values()))), dtype)
    for name, values in fields.items():
        found[name] = values
    return found


def numbered(pieces: Iterable[Records], by: tuple[str, ...]) -> Iterator[tuple[Records, IntArray]]:
    """Sorted records, each with the number of equal ones before it, in whatever piece."""
    last, n_last = None, 0
    for records in pieces:
        keys = np.column_stack([records[name] for name in by])
        before = places_in_runs(np.append(True, (keys[1:] != keys[:-1]).any(axis=1)))
        if last is not None and (keys[0] == last).all():
            before[(keys == last).all(axis=1)] += n_last
        last, n_last = keys[-1], int(before[-1]) + 1
        yield records, before


def places_in_runs(begins: BoolArray) -> IntArray:
    """The place of each item in its run, given where runs begin."""
    first = np.flatnonzero(begins)
    return np.arange(len(begins)) - np.repeat(first, np.diff(first, append=len(begins)))
