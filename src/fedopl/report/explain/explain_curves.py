"""Curves of a policy: what each feature adds to a score, alone and with another at a corner."""

from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.term_parts import PartWeights, parts_of
from fedopl.policies.terms import Terms
from fedopl.report.explain.explain_weights import Explanation, explain_weights
from fedopl.report.words.numbers import plain
from fedopl.results.record import Record

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


N_POINTS = 61  # of a curve
_N_MADE_UP = 2000
REACH = 2.0  # standard deviations to either side, of a number that has no knots


@dataclass(frozen=True, eq=False, kw_only=True)
class Curve:
    """What one feature alone adds to each score, with all other features at their means.

    Zero is what the feature adds on average, so a curve above zero favours an action.
    """

    place: int  # of the feature
    feature: str
    at: FloatArray  # (n_points,) values of the feature, rising
    adds: FloatArray  # (n_scores, n_points)
    shown: FloatArray  # the few values that a table shows; a figure shows what lies between them
    strength: FloatArray  # (n_scores,) standard deviation of what it adds
    # Where the curve jumps: `at` has these values, and of each the next number.
    cuts: FloatArray = field(default_factory=lambda: np.zeros(0))  # (n_cuts,) rising

    @property
    def is_flag(self) -> bool:
        """Whether the feature takes only the values 0 and 1."""
        return len(self.at) == 2

    @property
    def drawn(self) -> BoolArray:  # (n_points,)
        """The points that a figure shows; points further out have few rows, if any."""
        inside: BoolArray = (self.at >= self.shown[0]) & (self.at <= self.shown[-1])
        return inside


@dataclass(frozen=True, eq=False, kw_only=True)
class FeaturePair:
    """What two features add only together, beyond what each adds alone."""

    places: tuple[int, int]
    features: tuple[str, str]
    strength: FloatArray  # (n_scores,) standard deviation of what they add
    # (n_scores,) 1 if the pair adds when both are above or both below their means, −1 if it adds
    # when one is above and one below, 0 if that depends.
    leaning: FloatArray
    corner: Corner | None  # where their effects jump, if they do


@dataclass(frozen=True, eq=False, kw_only=True)
class WaveStrength:
    """What all waves of several features add together."""

    places: tuple[int, ...]  # of the features that they are of
    features: tuple[str, ...]
    strength: FloatArray  # (n_scores,) standard deviation of what they add


@dataclass(frozen=True, eq=False, kw_only=True)
class CurveExplanation:
    """The curves of every feature and the pairs that act together, the strongest first."""

    weights: Explanation  # of all terms
    curves: tuple[Curve, ...]
    pairs: tuple[FeaturePair, ...]
    waves: WaveStrength | None
    average: FloatArray  # (n_features,) where the other features are
    from_run: bool  # whether means and deviations are those of a run, or made up

    @property
    def strongest(self) -> float:
        """The largest of all strengths."""
        strengths = [curve.strength for curve in self.curves]
        strengths += [pair.strength for pair in self.pairs]
        strengths += [self.waves.strength] if self.waves else []
        return max((float(strength.max()) for strength in strengths), default=0.0)


def explain_curves(policy: LinearPolicy, record: Record | None = None) -> CurveExplanation:
    """The curves of a policy with nonlinear effects; with its run, relative to averages there."""
    terms = cast("Terms", policy.terms)  # as it bends
    moments = _spread_evenly(terms)
    if record is not None:
        moments = record.statistics.term_moments(record.mixture)
    weights = explain_weights(policy, record)
    average = moments[0][: len(policy.feature_names)]
    _, contrasts = policy.contrasts()
    parts = parts_of(terms, contrasts, average)
    waves = _waves(terms, contrasts, moments[1])
    for place in waves.places if waves else ():
        parts.setdefault((place,), np.zeros_like(contrasts))
    strength = {key: _deviations(own, moments[1]) for key, own in parts.items()}
    by_strength = sorted(parts, key=lambda key: -float(strength[key].max()))
    curves = [
        _curve(policy, weights, moments, key[0], parts[key], strength[key])
        for key in by_strength
        if len(key) == 1 and (strength[key].any() or (waves and key[0] in waves.places))
    ]
    if waves:
        curves = [_with_waves(own, moments) if own.place in waves.places else own for own in curves]
        curves.sort(key=lambda own: -float(own.strength.max()))
    return CurveExplanation(
        weights=weights,
        curves=tuple(curves),
        pairs=tuple(
            _pair(terms, parts, moments, (key[0], key[1]), strength[key])
            for key in by_strength
            if len(key) == 2 and strength[key].any()
        ),
        waves=waves,
        average=average,
        from_run=record is not None,
    )


def _waves(terms: Terms, contrasts: FloatArray, covariances: FloatArray) -> WaveStrength | None:
    """What waves of several features add; None if no wave is used."""
    first = terms.n_terms - terms.n_waves
    used = [
        term
        for term in range(first, terms.n_terms)
        if len(terms.sources[term]) > 1 and contrasts[:, term].any()
    ]
    if not used:
        return None
    own = np.zeros_like(contrasts)
    own[:, used] = contrasts[:, used]
    places = tuple(sorted({place for term in used for place in terms.sources[term]}))
    return WaveStrength(
        places=places,
        features=tuple(terms.features[place] for place in places),
        strength=_deviations(own, covariances),
    )


def _with_waves(curve: Curve, moments: TermMoments) -> Curve:
    """The curve less its mean, with its deviation, both as if the feature were normal.

    The sums do not give the mean and deviation, since they do not cover what waves add along a
    single feature.
    """
    mean, variance = moments[0][curve.place], moments[1][curve.place, curve.place]
    if not variance > 0:
        return curve
    share = np.exp(-((curve.at - mean) ** 2) / (2 * variance)) * np.gradient(curve.at)
    share /= share.sum()
    adds = curve.adds - (curve.adds @ share)[:, None]
    return replace(curve, adds=adds, strength=np.sqrt(adds**2 @ share))


def _spread_evenly(terms: Terms) -> TermMoments:
    """Moments of made-up contexts: numbers uniform between outer knots, others 0 or 1 evenly."""
    rng = np.random.default_rng(0)
    contexts = rng.integers(0, 2, (_N_MADE_UP, len(terms.features))).astype(np.float64)
    for place, name in enumerate(terms.features):
        knots = terms.basis.knots.get(name)
        if knots:
            contexts[:, place] = rng.uniform(knots[0], knots[-1], _N_MADE_UP)
    found = terms.of(contexts)
    return found.mean(axis=0), np.cov(found.T, ddof=0)


def _deviations(weights: FloatArray, covariances: FloatArray) -> FloatArray:  # (n_scores,)
    variances = np.einsum("st,tu,su->s", weights, covariances, weights)
    # Rounding leaves small remainders of terms that cancel.
    largest = np.einsum("st,t->s", weights**2, np.diagonal(covariances))
    deviations: FloatArray = np.sqrt(np.where(variances > 1e-12 * largest, variances, 0.0))
    return deviations


def _curve(
    policy: LinearPolicy,
    weights: Explanation,
    moments: TermMoments,
    place: int,
    part: FloatArray,
    strength: FloatArray,
) -> Curve:
    """The curve of the feature at this place, by the policy itself."""
    terms, means = cast("Terms", policy.terms), moments[0]
    knots = terms.basis.knots.get(policy.feature_names[place])
    # The values at which a curve is drawn, and the few values that a table shows.
    if knots:
        low, high = knots[0], knots[-1]
        at = np.linspace(2 * low - high, 2 * high - low, N_POINTS)
        shown = np.array([low - (high - low) / 2, *knots, high + (high - low) / 2])
    elif weights.yes_no[place] or weights.step == "unit":
        at = shown = np.array([0.0, 1.0])
    else:
        deviation = np.sqrt(moments[1][place, place])
        at = means[place] + deviation * np.linspace(-REACH, REACH, N_POINTS)
        shown = at[:: N_POINTS // 4]
    cuts = np.array(sorted(cut for own, cut in terms.jumps if own == place))
    at = np.union1d(at, [cuts, np.nextafter(cuts, np.inf)])
    average = means[: len(policy.feature_names)]
    contexts = np.tile(average, (len(at) + 1, 1))
    contexts[:-1, place] = at  # the last is average in everything
    _, scores = policy.contrasted(policy.linear(contexts).T)
    on_average = part @ (terms.of(average[None, :])[0] - means)
    return Curve(
        place=place,
        feature=policy.feature_names[place],
        at=at,
        adds=scores[:, :-1] - scores[:, -1:] + on_average[:, None],
        shown=shown,
        strength=strength,
        cuts=cuts,
    )


def _pair(
    terms: Terms,
    parts: PartWeights,
    moments: TermMoments,
    places: tuple[int, int],
    strength: FloatArray,
) -> FeaturePair:
    together = [term for term in terms.factors if terms.sources[term] == places]
    signs = np.sign(parts[places][:, together])
    leaning = np.where((signs >= 0).all(axis=1), 1.0, np.where((signs <= 0).all(axis=1), -1.0, 0.0))
    first, second = (terms.features[place] for place in places)
    return FeaturePair(
        places=places,
        features=(first, second),
        strength=strength,
        leaning=leaning,
        corner=corner_of(terms, parts, moments, places),
    )
