"""Parts of a score: what each feature adds by itself, and what two add only together."""

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.policies.terms import Factor, Terms

PartWeights = dict[tuple[int, ...], FloatArray]  # by one feature's place, or by those of two


def parts_of(terms: Terms, weights: FloatArray, at: FloatArray) -> PartWeights:
    """Weights of terms, (n_scores, n_terms), for each feature and for each two that act together.

    All parts add up to the weights, but for waves of several numbers, which are no part. What a
    product w·f·g adds as long as g is what it is in the context `at` belongs to the feature of f,
    and the other way round; what is left is w·(f − f(at))·(g − g(at)), but for a constant, and
    belongs to both together.
    """
    there = terms.of(at[None, :])[0]
    found: PartWeights = {}
    first_wave = terms.n_terms - terms.n_waves
    for term, sources in enumerate(terms.sources[: terms.n_terms]):
        own = weights[:, term]
        if not own.any() or (term >= first_wave and len(sources) > 1):
            continue
        _add(found, sources, weights.shape, term, own)
        if term in terms.factors:
            both = terms.factors[term]
            for factor, other, place in zip(both, both[::-1], sources, strict=True):
                alone = own * _value(other, there) * factor.times
                _add(found, (place,), weights.shape, factor.term, alone)
                _add(found, sources, weights.shape, factor.term, -alone)
    return found


def _value(factor: Factor, terms: FloatArray) -> float:
    return float((terms[factor.term] - factor.less) * factor.times)


def _add(
    found: PartWeights, key: tuple[int, ...], shape: tuple[int, ...], term: int, more: FloatArray
) -> None:
    found.setdefault(key, np.zeros(shape))[:, term] += more
