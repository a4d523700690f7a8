"""Counts that do not tell of single rows: rounded up or down by chance."""

import hashlib

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.seeds import generator_for


def rounded(
    counts: FloatArray, base: int, rng: np.random.Generator
) -> FloatArray:  # shaped as counts
    """Counts to a multiple of the base above or below, by chance, so that the mean stays right.

    With exact totals beside them, counts that go to the nearest multiple could be told (random
    rounding, as statistical offices do it).
    """
    return np.floor(counts / base + rng.random(counts.shape)) * base


def rounding_draws(
    seed: int, fingerprint: str, asked: FloatArray | None = None
) -> np.random.Generator:
    """Draws that depend on the rows (`fingerprint`), which nobody else knows, and on the query.

    So asking the same again changes nothing.
    """
    what = b"" if asked is None else hashlib.sha256(asked.tobytes()).digest()
    purpose = f"rounding {fingerprint} {what.hex()}".rstrip()
    return generator_for(seed, purpose=purpose)
