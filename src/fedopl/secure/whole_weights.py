"""Weights of clients as whole numbers, so that sums of whole numbers stay whole."""

from collections.abc import Mapping
from typing import NamedTuple

# The number of steps in the largest weight.
WEIGHT_STEPS = 4096
# Weights that differ by less count as equal: the difference is rounding.
_SAME = 1e-9


class WholeWeights(NamedTuple):
    """The factor on each client's numbers, and the largest allowed factor."""

    by_client: dict[str, int]
    scale: int

    def total(self, counted: Mapping[str, int]) -> float:
        """The weight of each client's number of rows in total; the heaviest row counts as 1."""
        return sum(self.by_client[name] * n_rows for name, n_rows in counted.items()) / self.scale

    def squared(self) -> "WholeWeights":
        """The squares of all weights, on the same scale, rounded up."""
        squares = {name: -(-(own**2) // self.scale) for name, own in self.by_client.items()}
        return WholeWeights(squares, self.scale)


def whole_weights(weights: Mapping[str, float]) -> WholeWeights:
    """Whole numbers in about these proportions; all are 1 if the weights are equal."""
    largest = max(weights.values())
    if min(weights.values()) >= largest * (1 - _SAME):
        return WholeWeights(dict.fromkeys(sorted(weights), 1), 1)
    found = {name: round(WEIGHT_STEPS * weights[name] / largest) for name in sorted(weights)}
    return WholeWeights(found, WEIGHT_STEPS)
