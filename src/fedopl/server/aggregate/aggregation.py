"""Weighing answers by the mixture. Sums go by sorted names: floats depend on order."""

from collections.abc import Iterator, Mapping

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import FederationError
from fedopl.base.labels import quoted
from fedopl.study.mixture import AnyMixture, Weights, renormalised


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


def agreed_weights(mixture: AnyMixture, rows: Mapping[str, int]) -> Weights:
    """The agreed mixture over those who take part; those it names and who do not, are left out."""
    target = getattr(mixture, "toward", None)
    if target is not None and target not in rows:
        raise FederationError(
            f"the mixture is skewed toward '{target}', who does not take part; "
            f"those who do: {quoted(sorted(rows))}"
        )
    named = getattr(mixture, "shares", {})
    return renormalised(mixture.weights({**dict.fromkeys(named, 0), **rows}), rows)
