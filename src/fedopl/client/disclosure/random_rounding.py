"""Counts that do not tell of single rows: rounded up or down by chance."""

import hashlib

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.seeds import generator_for
from fedopl.client.workspace import Workspace


def rounded(
    counts: FloatArray, base: int, rng: np.random.Generator
) -> FloatArray:  # shaped as counts
    """Counts to a multiple of the base above or below, by chance, so that the mean stays right.

    With exact totals beside them, counts that go to the nearest multiple could be told (random
    rounding, as statistical offices do it).
    """
    return np.floor(counts / base + rng.random(counts.shape)) * base


def rounding_draws(space: Workspace, asked: FloatArray | None = None) -> np.random.Generator:
    """Draws that depend on the rows, which nobody else knows, and on what was asked.

    So asking the same again changes nothing.
    """
    what = b"" if asked is None else hashlib.sha256(asked.tobytes()).digest()
    purpose = f"rounding {space.fingerprint} {what.hex()}".rstrip()
    return generator_for(space.study.seed, purpose=purpose)
