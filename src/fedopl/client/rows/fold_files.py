"""Folds of rows on disk: made with some rows in memory, and kept in files beside the rows."""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedopl.base.arrays import IntArray
from fedopl.client.disk.disk_array import cached_array, slices
from fedopl.client.disk.external_sort import RECORDS_PER_BUCKET, Records
from fedopl.client.disk.prefetch import prefetched
from fedopl.client.rows.fold_turns import CANDIDATE, HELD_OUT, turns_on_disk
from fedopl.client.rows.row_keys import row_keys
from fedopl.client.table.logged_data import LoggedData, folder_of

# Of contexts, read at a time.
BYTES_PER_SLICE = 1 << 24


def folds_on_disk(
    data: LoggedData, n_folds: int, share: float, quotas: IntArray, seed: int
) -> Any:  # (n_rows,)
    """The fold of each row, `n_folds` for held-out rows: the same as it is for rows in memory.

    Of each action's rows, as many are held out as its quota says, which follows from the share.
    """
    # Whatever the number of folds, rows take the same turns.
    turns = cached_beside(data, f"turns {share!r} {seed}", np.int64, _turns(data, quotas, seed))

    def folds(rows: slice) -> NDArray[np.uint16]:
        own = turns[rows]
        return np.where(own == HELD_OUT, n_folds, own % n_folds).astype(np.uint16)

    made = (folds(rows) for rows in slices(data.n_rows))
    return cached_beside(data, f"folds {n_folds} {share!r} {seed}", np.uint16, made)


def cached_beside(
    data: LoggedData, what: str, stored: DTypeLike, made: Iterator[NDArray[Any]]
) -> Any:
    """An array beside the rows, made once for these rows; Any, as it stands for one in memory."""
    arrays: list[Any] = [data.contexts, data.actions, data.groups]
    rows = [f"{array.path} {array.digest}" for array in arrays if array is not None]
    name = hashlib.sha256(" ".join([what, *rows]).encode()).hexdigest()[:32]
    path = folder_of(data) / f"{what.split()[0]}-{name}"
    return cached_array(path, data.n_rows, stored, made)


def _turns(data: LoggedData, quotas: IntArray, seed: int) -> Iterator[IntArray]:
    counts, folder = data.rows_per_action, folder_of(data)
    return turns_on_disk(_records(data, seed), counts, quotas, folder, RECORDS_PER_BUCKET)


def _records(data: LoggedData, seed: int) -> Iterator[Records]:
    """What the external sort needs to know of each row."""

    def read(rows: slice) -> Records:
        records = np.empty(rows.stop - rows.start, CANDIDATE)
        keys = row_keys(data.contexts[rows], seed, ("evaluation", "folds"))
        records["key"], records["fold_key"] = keys
        records["row"] = np.arange(rows.start, rows.stop)
        records["stratum"] = data.actions[rows]
        return records

    n_at_once = max(1, BYTES_PER_SLICE // (8 * data.n_features))
    return prefetched(read, slices(data.n_rows, n_at_once))
