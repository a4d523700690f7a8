"""Weights of clients as whole numbers, so that sums of whole numbers stay whole."""

from collections.abc import Mapping
from typing import NamedTuple

# Steps of the largest weight.
WEIGHT_STEPS = 4096
# Weights that differ by less are the same: what rounding leaves.
_SAME = 1e-9


class WholeWeights(NamedTuple):
    """What each client's numbers are multiplied by, and what the largest of them may be."""

    by_client: dict[str, int]
    scale: int

    def total(self, counted: Mapping[str, int]) -> float:
        """The weight of a number of rows of each client; the heaviest row counts as 1."""
        return sum(self.by_client[name] * n_rows for name, n_rows in counted.items()) / self.scale

    def squared(self) -> "WholeWeights":
        """The squares of all weights, of the same scale, rounded up."""
        squares = {name: -(-(own**2) // self.scale) for name, own in self.by_client.items()}
        return WholeWeights(squares, self.scale)


def whole_weights(weights: Mapping[str, float]) -> WholeWeights:
    """Whole numbers in about these proportions; all are 1 where no client differs."""
    largest = max(weights.values())
    if min(weights.values()) >= largest * (1 - _SAME):
        return WholeWeights(dict.fromkeys(sorted(weights), 1), 1)
    found = {name: round(WEIGHT_STEPS * weights[name] / largest) for name in sorted(weights)}
    return WholeWeights(found, WEIGHT_STEPS)
