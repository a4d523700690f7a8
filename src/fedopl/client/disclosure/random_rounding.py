"""Random rounding: counts go up or down to a multiple of a base by chance, unbiased.

Statistical offices prefer it to rounding to the nearest multiple, which exact totals would undo.
"""

import hashlib

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.seeds import generator_for


def randomly_rounded(
    counts: FloatArray, base: int, rng: np.random.Generator
) -> FloatArray:  # shaped as counts
    """Each count as the multiple of `base` above or below it, by chance; its expectation stays."""
    return np.floor(counts / base + rng.random(counts.shape)) * base


def rounding_generator(
    seed: int, fingerprint: str, asked: FloatArray | None = None
) -> np.random.Generator:
    """A generator seeded by the rows' fingerprint, which is private, and by the query's array.

    A repeated query draws the same, so that averaging over repetitions removes no noise.
    """
    what = b"" if asked is None else hashlib.sha256(asked.tobytes()).digest()
    return generator_for(seed, purpose=f"rounding {fingerprint} {what.hex()}".rstrip())
