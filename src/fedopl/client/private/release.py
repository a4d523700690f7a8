"""Sums with noise: the only numbers of rows that leave in a study with differential privacy."""

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.messages.refusal import RefusalCode
from fedopl.privacy.exact_noise import discrete_gaussian, variance_on_grid
from fedopl.privacy.keyed_bits import KeyedBits
from fedopl.privacy.sum_grid import FINE, FINE_STEP
from fedopl.study.private.added_up import AddedUp, WholeWeights

# Sums of whole numbers below this are exact in floating point.
LARGEST_EXACT = 2.0**53


@dataclass(frozen=True)
class Noise:
    """Noise that follows from the client's secret, all of its rows, and the question.

    The same question has the same noise: fresh noise would average out.
    """

    draws: PrivateDraws
    study: bytes
    # A hash of the rows. If sums of other rows had the same noise, their difference would disclose
    # the rows that differ.
    fingerprint: str
    asked: bytes

    def added(self, sums: FloatArray, deviation: float, what: str) -> FloatArray:
        """Sums, in whole fine steps of the grid, with noise of this deviation, in units."""
        _check_exact(sums)
        drawn = self._drawn(sums.shape, variance_on_grid(deviation, FINE_STEP), what)
        return (sums + drawn) / FINE

    def _drawn(self, shape: tuple[int, ...], variance: int, what: str, scale: int = 1) -> IntArray:
        named = f"{self.fingerprint}\x1f{what}\x1f{variance}\x1f{FINE_STEP / scale}".encode()
        label = hashlib.sha256(self.study + named + self.asked).digest()
        return discrete_gaussian(shape, variance, KeyedBits(self.draws.key, label))


@dataclass(frozen=True)
class NoiseOfOne(Noise):
    """A client's part of the noise in a total, for sums with the client's weight in that total.

    The sums stay whole numbers, in steps so fine that a client's weight is a whole number, too.
    """

    party: AddedUp
    weights: WholeWeights

    def added(self, sums: FloatArray, deviation: float, what: str) -> Any:
        """Sums in whole steps, times the weight, with this client's part of the noise."""
        _check_exact(sums)
        weight, scale = self.weights.by_client[self.draws.client], self.weights.scale
        variance = variance_on_grid(self.party.own_deviation(deviation), FINE_STEP / scale)
        # The label includes the weight: the same sums at two weights must not have the same noise.
        drawn = self._drawn(sums.shape, variance, f"{what} times {weight}", scale)
        return weight * sums.astype(np.int64) + drawn


def _check_exact(sums: FloatArray) -> None:
    if not np.abs(sums).max(initial=0.0) < LARGEST_EXACT:
        raise RefusedError(RefusalCode.NORM_TOO_LARGE)


def noised_squares(squares: FloatArray, deviation: float, noise: Noise) -> FloatArray:
    """Symmetric matrices with noise; off the diagonal, noise is smaller by √2.

    So noise is the same in every direction, and a row moves a matrix by its Frobenius length.
    """
    n_columns = squares.shape[-1]
    rows, columns = np.triu_indices(n_columns, 1)
    diagonal = np.diagonal(squares, axis1=-2, axis2=-1)
    above = noise.added(squares[..., rows, columns], deviation / math.sqrt(2), "beside squares")
    full = np.zeros(squares.shape, above.dtype)
    full[..., rows, columns] = above
    full += np.swapaxes(full, -1, -2)
    places = np.arange(n_columns)
    full[..., places, places] = noise.added(diagonal, deviation, "squares")
    return full
