"""Corners in words: what two features do together on the four sides of a threshold of each."""

from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.policies.term_parts import PartWeights
from fedopl.policies.terms import Terms
from fedopl.report.words.numbers import plain

SLIGHT = 0.25  # of the most that is added: where never so much is added is not worth a word
_FEWEST = 1e-3  # share of rows: for fewer, sums do not say what features add on average

TermMoments = tuple[FloatArray, FloatArray]  # means and covariances of terms
_Side = tuple[int, int]  # of each of two cuts: 1 is beyond it


@dataclass(frozen=True, eq=False, kw_only=True)
class Corner:
    """What two features add to scores on the sides of a threshold of each."""

    features: tuple[str, str]
    cuts: tuple[float, float]
    # (n_scores, 2, 2), on average there, less the mean over all rows. The first axis says whether
    # the first feature is beyond its cut, the second whether the second feature is.
    adds: FloatArray
    # (n_scores, 2) whether a feature has the opposite effect where the other feature is on the side
    # that curves do not show.
    reverses: BoolArray

    def where_favoured(self, score: int) -> str:
        """The sides on which a score is clearly above average; empty if there are none."""
        adds = self.adds[score]
        above = (adds > 0) & (adds >= SLIGHT * adds.max())
        sides = [(int(first), int(second)) for first, second in np.argwhere(above)[::-1]]
        if len(sides) == 3:
            first, second = np.argwhere(~above)[0]
            return f"except where {self._both((int(first), int(second)))}"
        common = [place for place in (0, 1) if len({side[place] for side in sides}) == 1]
        if len(sides) == 2 and common:
            most = self._words(max(sides, key=lambda side: float(adds[side])))
            return f"where {most[common[0]]}, most where {most[1 - common[0]]}"
        return ", and ".join(f"where {self._both(side)}" for side in sides)

    def _both(self, side: _Side) -> str:
        return " and ".join(self._words(side))

    def _words(self, side: _Side) -> list[str]:
        return [
            f"{name} {'>' if beyond else '≤'} {plain(cut)}"
            for name, cut, beyond in zip(self.features, self.cuts, side, strict=True)
        ]


def corner_of(
    terms: Terms, parts: PartWeights, moments: TermMoments, places: tuple[int, int]
) -> Corner | None:
    """The corner of two features, if the policy uses one; `parts` are those at the means."""
    first_hinge = terms.sizes["thresholds"]
    weights = parts[places]
    corners = [t for t in terms.factors if t < first_hinge and terms.sources[t] == places]
    own = [term for term in corners if weights[:, term].any()]
    if not own:
        return None
    (corner,) = own  # a basis has at most one for two features
    first, second = (stretch.low for stretch in terms.varying[corner])
    of_both = [part for key, part in parts.items() if set(key) <= set(places)]
    return Corner(
        features=(terms.features[places[0]], terms.features[places[1]]),
        cuts=(first, second),
        adds=_adds_around(terms, np.sum(of_both, axis=0), moments, corner),
        reverses=_reverses(terms, parts, moments, corner),
    )


def _adds_around(
    terms: Terms, weights: FloatArray, moments: TermMoments, corner: int
) -> FloatArray:  # (n_scores, 2, 2)
    """What these weights add on average on each side of both cuts, less the mean.

    Sums have the mean of every term's product with both jumps and with their corner. So they have
    its mean on each of the four sides, too.
    """
    means, covariances = moments
    jumps = [factor.term for factor in terms.factors[corner]]
    # The last entry is the share of rows.
    everywhere = np.append(means, 1.0)
    first, second, both = (
        np.append(covariances[:, term] + means * means[term], means[term])
        for term in (*jumps, corner)
    )
    sums = {
        (0, 0): everywhere - first - second + both,
        (0, 1): second - both,
        (1, 0): first - both,
        (1, 1): both,
    }
    adds = np.zeros((len(weights), 2, 2))
    for side, total in sums.items():
        if total[-1] > _FEWEST:
            adds[:, *side] = weights @ (total[:-1] / total[-1] - means)
    return adds


def _reverses(
    terms: Terms, parts: PartWeights, moments: TermMoments, corner: int
) -> BoolArray:  # (n_scores, 2)
    """Whether what a feature adds falls where it rises with the other on its cut's other side."""
    means, covariances = moments
    at_means = terms.of(means[None, : len(terms.features)])[0]
    places, both = terms.sources[corner], terms.factors[corner]
    weights = parts[places][:, corner]
    found = []
    for place, factor, other in zip(places, both, both[::-1], strict=True):
        shown = parts.get((place,), np.zeros_like(parts[places]))
        turned = shown.copy()
        turned[:, factor.term] += weights * (1 - 2 * at_means[other.term])
        found.append(np.einsum("st,tu,su->s", shown, covariances, turned) < 0)
    return np.stack(found, axis=1)
