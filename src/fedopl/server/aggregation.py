"""Weighing answers by the mixture. Sums go by sorted names: floats depend on order."""

from collections.abc import Mapping

import numpy as np

from fedopl.arrays import FloatArray


def weighted_sum(weights: Mapping[str, float], arrays: Mapping[str, FloatArray]) -> FloatArray:
    """Σ_c λ_c · array_c; a client's weight is the server's, whatever the client says."""
    names = sorted(arrays)
    total = np.zeros_like(arrays[names[0]], dtype=np.float64)
    for name in names:
        total = total + weights[name] * arrays[name]
    return total


def plain_sum(arrays: Mapping[str, FloatArray]) -> FloatArray:
    """Σ_c array_c."""
    return weighted_sum(dict.fromkeys(arrays, 1.0), arrays)
