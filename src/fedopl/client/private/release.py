"""Sums with noise: the only numbers of rows that leave in a study with differential privacy."""

import hashlib
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.private.private_rows import GRID, LARGEST_EXACT
from fedopl.messages.refusal import RefusalCode
from fedopl.privacy.exact_noise import discrete_gaussian, variance_on_grid
from fedopl.privacy.keyed_bits import KeyedBits

# A product of two numbers on the grid.
FINE = float(GRID**2)
FINE_STEP = Fraction(1, GRID**2)


@dataclass(frozen=True)
class Noise:
    """Noise that follows from the client's secret, its rows as a whole, and what was asked.

    Asked again, an answer has the same noise: fresh noise would average out.
    """

    draws: PrivateDraws
    study: bytes
    # Of the rows: sums of other rows with the same noise would tell the rows that differ.
    fingerprint: str
    asked: bytes

    def added(self, sums: FloatArray, deviation: float, what: str) -> FloatArray:
        """Sums, in whole fine steps of the grid, with noise of this deviation, in units."""
        if not np.abs(sums).max(initial=0.0) < LARGEST_EXACT:
            raise RefusedError(RefusalCode.NORM_TOO_LARGE)
        variance = variance_on_grid(deviation, FINE_STEP)
        named = f"{self.fingerprint}\x1f{what}\x1f{variance}\x1f{FINE_STEP}".encode()
        label = hashlib.sha256(self.study + named + self.asked).digest()
        bits = KeyedBits(self.draws.key, label)
        drawn = discrete_gaussian(sums.shape, variance, bits)
        return (sums + drawn) / FINE


def symmetric(found: FloatArray, diagonal: FloatArray, beside: FloatArray) -> FloatArray:
    """Symmetric matrices with this diagonal and these entries above it."""
    full = np.zeros_like(found)
    n_columns = found.shape[-1]
    rows, columns = np.triu_indices(n_columns, 1)
    full[..., rows, columns] = beside
    full += np.swapaxes(full, -1, -2)
    places = np.arange(n_columns)
    full[..., places, places] = diagonal
    return full
