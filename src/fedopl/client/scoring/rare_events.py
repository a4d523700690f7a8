"""Rows with an unusual outcome, for example deaths: noise on values has to hide them."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray

# If more than this share of rows have another outcome, the scores of a usual row show how far one
# row moves a value.
_RARE = 0.1


@dataclass(frozen=True)
class Events:
    """The rows that differ from the usual value of an outcome."""

    size: float  # how far they differ from it, as a root mean square
    largest_share: float  # the largest share of one row in the sum of these squares
    are_rare: bool

    @classmethod
    def among(cls, parts: Iterable[FloatArray]) -> "Events":
        """The events among all rows' outcomes, which come in parts."""
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
