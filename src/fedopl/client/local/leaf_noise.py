"""Noise on what a client finds in the leaves of a tree that somebody else chose.

The action that it then chooses in a leaf shows in the value of its personal tree. A leaf may hold
one person, or its other rows may be known. Without noise such a leaf would disclose how that
person's scores compare.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from fedopl.base.arrays import FloatArray
from fedopl.client.disclosure.noise import noisy_counts


@dataclass(frozen=True, eq=False, kw_only=True)
class LeafNoise:
    """Hides single rows in counts of rows and sums of scores by leaf."""

    minimum_cell: int
    deviation: float  # of sums: as large as the change by a few usual rows
    draws: Callable[[str], Generator]  # the same for the same tree

    @classmethod
    def none(cls) -> "LeafNoise":
        """No noise, for the client's own tree."""
        return cls(minimum_cell=0, deviation=0.0, draws=lambda _: np.random.default_rng(0))

    def on_counts(self, counts: FloatArray, what: str) -> FloatArray:  # shaped as counts
        """Rows by leaf, with noise; none becomes negative."""
        if self.minimum_cell < 2:
            return counts
        return noisy_counts(counts, self.minimum_cell, self.draws(what))

    def on_sums(self, sums: FloatArray) -> FloatArray:  # shaped as sums
        """Sums of scores by action and leaf, with noise."""
        if not self.deviation:
            return sums
        return np.asarray(sums + self.deviation * self.draws("sums").standard_normal(sums.shape))
