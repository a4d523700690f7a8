"""Rows with an unusual outcome, such as deaths: where few have one, their spread says little."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray


@dataclass(frozen=True)
class Events:
    """The rows that differ from the usual value of an outcome."""

    size: float  # how far they differ from it, as a root mean square

    @classmethod
    def among(cls, parts: Iterable[FloatArray]) -> "Events":
        """The events among all rows' outcomes, which come in parts."""
        usual, count, total = None, 0, 0.0
        for values in parts:
            usual = float(np.median(values)) if usual is None else usual
            squares = (values - usual) ** 2
            count, total = count + int(np.count_nonzero(squares)), total + float(squares.sum())
        return cls(float(np.sqrt(total / count)) if count else 0.0)

    def least_spread(self, n_actions: int) -> float:
        """How far an event moves scores, with the weight that its score has on average."""
        return self.size * n_actions
