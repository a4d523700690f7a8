"""Weighing answers by the mixture. Sums go by sorted names: floats depend on order."""

from collections.abc import Iterator, Mapping

from fedopl.base.arrays import FloatArray


def weighted_sum(weights: Mapping[str, float], arrays: Mapping[str, FloatArray]) -> FloatArray:
    """Σ_c λ_c · array_c; a client's weight is the server's, whatever the client says."""
    return _sum_of(weights[name] * arrays[name] for name in sorted(arrays))


def plain_sum(arrays: Mapping[str, FloatArray]) -> FloatArray:
    """Σ_c array_c."""
    return _sum_of(arrays[name] for name in sorted(arrays))


def _sum_of(parts: Iterator[FloatArray]) -> FloatArray:
    total = 0.0 + next(parts)
    for part in parts:
        total += part
    return total
