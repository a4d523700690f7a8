"""Keys of rows: seeded hashes that assign rows to folds, whatever their order."""

from functools import lru_cache
from weakref import WeakKeyDictionary

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray, frozen
from fedopl.base.seeds import generator_for
from fedopl.client.disk.disk_array import slices
from fedopl.client.disk.external_sort import SortKeys
from fedopl.client.table.logged_data import ROW_ARRAYS, LoggedData

# This many contexts stay in a processor's cache while each of several keys is computed.
ROWS_HASHED_AT_ONCE = 4096
_SHIFTS = [np.uint64(bits) for bits in (30, 27, 31)]
_FACTORS = [np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)]


def row_keys(
    contexts: FloatArray, seed: int, purposes: tuple[str, ...]
) -> SortKeys:  # (n_purposes, n_rows)
    """Hashes of each row's contexts, one for each purpose."""
    multipliers = _multipliers(contexts.shape[1], seed, purposes)
    keys = np.empty((len(purposes), len(contexts)), np.uint64)
    half = np.uint64(32)
    for rows in slices(len(contexts), ROWS_HASHED_AT_ONCE):
        # A float's sign, exponent and leading digits are all that small whole numbers have. The
        # shift moves these bits down, so that a product can spread them upwards.
        bits = contexts[rows].view(np.uint64)
        mixed = bits >> half
        mixed ^= bits
        for own, factors in zip(keys, multipliers, strict=True):
            np.einsum("ij,j->i", mixed, factors, out=own[rows])
    return scramble(keys)


def content_keys(data: LoggedData) -> SortKeys:  # (n_rows,)
    """A hash of all that each row holds; the same for everybody, as it never leaves."""
    keys = np.zeros(data.n_rows, np.uint64)
    for name in ROW_ARRAYS:
        array = getattr(data, name)
        for rows in slices(data.n_rows) if array is not None else ():
            part = np.asarray(array[rows], np.float64).reshape(rows.stop - rows.start, -1)
            keys[rows] += row_keys(np.ascontiguousarray(part), 0, (f"content {name}",))[0]
    return scramble(keys)


_ORDERS: WeakKeyDictionary[LoggedData, IntArray] = WeakKeyDictionary()


def content_order(data: LoggedData) -> IntArray:  # (n_rows,)
    """An order of the rows by what they hold, whatever order they come in; found once."""
    if data not in _ORDERS:
        _ORDERS[data] = content_keys(data).argsort(kind="stable")
    return _ORDERS[data]


def fingerprint_of_content(data: LoggedData) -> str:
    """A short hash of all rows, whatever order they come in; it never leaves the client."""
    keys = content_keys(data)
    totals = [int(np.add.reduce(own)) for own in (keys, scramble(keys + np.uint64(1)))]
    return f"{data.n_rows} {totals[0]:016x}{totals[1]:016x}"


def group_keys(
    n_groups: int, seed: int, purposes: tuple[str, ...]
) -> SortKeys:  # (n_purposes, n_groups)
    """Hashes of each group's code, one for each purpose."""
    drawn = _multipliers(2, seed, purposes)
    codes = np.arange(n_groups, dtype=np.uint64)
    return scramble(codes * drawn[:, :1] + drawn[:, 1:])


def scramble(keys: SortKeys) -> SortKeys:
    """The finaliser of SplitMix64 (Steele, Lea & Flood 2014)."""
    keys = (keys ^ (keys >> _SHIFTS[0])) * _FACTORS[0]
    keys = (keys ^ (keys >> _SHIFTS[1])) * _FACTORS[1]
    return keys ^ (keys >> _SHIFTS[2])


@lru_cache(64)  # each client with a secret has its own seed
def _multipliers(how_many: int, seed: int, purposes: tuple[str, ...]) -> SortKeys:
    """Odd numbers (n_purposes, how_many): multiplying by an odd number loses no bit."""
    drawn = [
        generator_for(seed, purpose=purpose).integers(0, 2**64, how_many, dtype=np.uint64)
        for purpose in purposes
    ]
    return frozen(np.stack(drawn) | np.uint64(1))
