"""Random rounding: counts go up or down to a multiple of a base by chance, unbiased.

Statistical offices prefer it to rounding to the nearest multiple, which exact totals would undo.
"""

import hashlib
from collections.abc import Callable

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.seeds import generator_for

Rounding = Callable[[FloatArray], FloatArray]


def random_rounding(base: int, seed: int, fingerprint: str, asked: FloatArray | None) -> Rounding:
    """Rounds each count to a multiple of `base` above or below it; its expectation stays.

    Draws follow from the rows' fingerprint, which is private, and the query's array: a repeated
    query draws the same, so that averaging over repetitions removes no noise.
    """
    what = b"" if asked is None else hashlib.sha256(asked.tobytes()).digest()
    rng = generator_for(seed, purpose=f"rounding {fingerprint} {what.hex()}".rstrip())
    return lambda counts: np.floor(counts / base + rng.random(counts.shape)) * base
