"""Parts of a score: what each feature adds alone, and what two features add only together."""

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.policies.terms import Factor, Terms

PartWeights = dict[tuple[int, ...], FloatArray]  # by one feature's place, or by those of two


def parts_of(terms: Terms, weights: FloatArray, at: FloatArray) -> PartWeights:
    """Weights of terms, (n_scores, n_terms), by feature and by pair of features that act together.

    All parts add up to the weights, except for waves of several numbers, which belong to no part.
    In a product w·f·g, the part with g at its value in the context `at` belongs to the feature of
    f, and vice versa. The rest, up to a constant, is w·(f − f(at))·(g − g(at)), and belongs to both
    together.
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
