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

from fedopl.base.arrays import IntArray
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
        records = np.empty(rows.stop - rows.start, CANDIDATE)
        keys = row_keys(held(data.contexts[rows]), seed, ("evaluation", "folds"))
        records["key"], records["fold_key"] = keys
        records["row"] = np.arange(rows.start, rows.stop)
        records["stratum"] = data.actions[rows]
        return records

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

        def sorter(name: str, dtype: np.dtype[Any]) -> Sorter:
            order = RecordOrder(dtype, ("key", "row"), RECORDS_PER_BUCKET)
            return Sorter(own / name, order, n_rows)

        by_row = RecordOrder(TURN, ("row",), RECORDS_PER_BUCKET)
        done = Sorter(own / "turns", by_row, n_rows, between=(0, n_rows - 1))
        training = sorter("training", TRAINING)
        smallest = np.full(len(counts), LARGEST, np.uint64)
        for kept in _hold_out(candidates, quotas, sorter, done):
            records = np.empty(len(kept), TRAINING)
            records["key"], records["row"] = kept["fold_key"], kept["row"]
            records["stratum"] = kept["stratum"]
            np.minimum.at(smallest, records["stratum"], records["key"])
            training.add(records)
        next_turn = first_turns(counts - quotas, smallest)
        for records in training.ascending():
            done.add(_turns(records["row"], _places(records["stratum"], next_turn)))
        for turns in done.ascending():
            yield np.ascontiguousarray(turns["turn"])


def _hold_out(
    candidates: Iterable[Records],
    quotas: IntArray,
    sorter: Callable[[str, np.dtype[Any]], Sorter],
    done: Sorter,
) -> Iterator[Records]:
    """The training rows; held-out rows are added to `done`."""
    if not quotas.any():
        yield from candidates
        return
    given = sorter("candidates", CANDIDATE)
    for records in candidates:
        given.add(records)
    # Rows with equal keys get keys of their own. Otherwise they would all be held out together.
    unique = sorter("ties broken", CANDIDATE)
    repeats = _Repeats(len(quotas))
    for records in given.ascending():
        again = repeats.before(records["key"], records["stratum"])
        repeated = again > 0
        if repeated.any():
            records["key"][repeated] = scramble(records["key"][repeated] + again[repeated])
        unique.add(records)
    next_place = np.zeros(len(quotas), np.int64)
    for records in unique.ascending():
        held_out = _places(records["stratum"], next_place) < quotas[records["stratum"]]
        done.add(_turns(records["row"].compress(held_out), np.full(held_out.sum(), HELD_OUT)))
        yield records.compress(~held_out)


class _Repeats:
    """Counts how often a key came before in its stratum, across parts of the sorted records."""

    def __init__(self, n_strata: int) -> None:
        self._last: np.uint64 | None = None
        self._counts = np.zeros(n_strata, np.uint64)

    def before(self, keys: SortKeys, strata: NDArray[np.uint16]) -> SortKeys:
        """The count for each record; records must come in the order of their keys."""
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
    """Each record's place in its stratum; `next_place` is advanced past these records."""
    order = np.argsort(strata, kind="stable")
    counts = np.bincount(strata, minlength=len(next_place))
    starts = np.cumsum(counts) - counts
    places = np.empty(len(strata), np.int64)
    places[order] = np.arange(len(strata)) + np.repeat(next_place - starts, counts)
    next_place += counts
    return places


def _turns(rows: NDArray[np.uint64], turns: IntArray) -> Records:
    records = np.empty(len(rows), TURN)
    records["row"], records["turn"] = rows, turns
    return records
