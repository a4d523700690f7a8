"""Keys of rows: seeded hashes that assign rows to folds, whatever their order."""

from functools import lru_cache

import numpy as np

from fedopl.base.arrays import FloatArray, frozen
from fedopl.base.seeds import generator_for
from fedopl.client.disk.disk_array import slices
from fedopl.client.disk.external_sort import SortKeys

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
