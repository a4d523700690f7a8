"""Rows with an unusual outcome, for example deaths: noise on values has to hide them."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray

# Where more rows than these have another outcome, a usual row's scores tell how far one moves.
_RARE = 0.1


@dataclass(frozen=True)
class Events:
    """The rows that differ from the usual value of an outcome."""

    size: float  # how far they differ from it, as the root of the mean square
    largest_share: float  # of the sum of these squares, that of one row
    are_rare: bool

    @classmethod
    def among(cls, parts: Iterable[FloatArray]) -> "Events":
        """Of all rows' outcomes, some at a time."""
        usual, count, n_rows, total, largest = None, 0, 0, 0.0, 0.0
        for values in parts:
            usual = float(np.median(values)) if usual is None else usual
            squares = (values - usual) ** 2
            count, n_rows = count + int(np.count_nonzero(squares)), n_rows + len(values)
            total += float(squares.sum())
            largest = max(largest, float(squares.max(initial=0.0)))
        if not count:
            return cls(0.0, 1.0, are_rare=True)
        size = float(np.sqrt(total / count))
        return cls(size, largest / total, are_rare=count < _RARE * n_rows)

    def least_spread(self, n_actions: int) -> float:
        """How far an event moves scores, with the weight that its score has on average."""
        return self.size * n_actions
