"""Terms: the columns that a basis computes from contexts, and their names."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple, Self

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.policies.basis import FAMILIES, Basis
from fedopl.policies.export.target import Target, Term
from fedopl.policies.waves import Waves


class Factor(NamedTuple):
    """One factor of a product: another term, minus an offset, times a scale."""

    term: int  # its place
    less: float
    times: float


class Stretch(NamedTuple):
    """The range of a feature over which something computed from it varies."""

    feature: int  # its place
    low: float
    high: float


class Terms:
    """The terms of a basis for features in this order: the features themselves come first.

    Beyond the outer knots, by as much as these lie apart, every term except the feature itself
    stays constant: effects seen in few rows are not extrapolated.
    """

    def __init__(self, basis: Basis, features: tuple[str, ...]) -> None:
        self.basis, self.features = basis, features
        place = {name: position for position, name in enumerate(features)}
        richest = FAMILIES.index(basis.families[-1])
        multiplied = basis.multiplied if richest >= FAMILIES.index("splines") else ()
        stepped = tuple(basis.knots) if richest >= FAMILIES.index("steps") else ()
        found = basis.found_thresholds or ()
        cuts = dict.fromkeys((place[name], cut) for one in found for name, cut in one)
        self.jumps = tuple(cuts)  # a feature's place, and a value beyond which outcomes jump
        # Pairs to multiply, by their positions among these.
        self._corners = [
            (self.jumps.index((place[a[0]], a[1])), self.jumps.index((place[b[0]], b[1])))
            for a, *rest in found
            for b in rest
        ]
        self._hinges = [(place[name], knot) for name, own in basis.knots.items() for knot in own]
        self._products = [(place[a], place[b]) for a, b in multiplied]
        self._steps = [place[name] for name in stepped]
        stepping = [(a, b) for a, b in multiplied if a in stepped and b in stepped]
        self._step_products = [(place[a], place[b]) for a, b in stepping]
        # Features as products use them: clamped, and measured from the middle knot in its unit.
        self.scaled = _Scaling.of(basis, place)
        self._waves = Waves.of(basis, place) if richest >= FAMILIES.index("waves") else Waves()
        self.n_waves = len(self._waves)  # which are the last terms

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The number of terms of each family, which are always the first ones of all terms."""
        counts = (
            len(self.features),
            len(self.jumps) + len(self._corners),
            len(self._hinges),
            len(self._products),
            len(self._steps) + len(self._step_products),
            len(self._waves),
        )
        n_families = 1 + FAMILIES.index(self.basis.families[-1])
        return dict(zip(FAMILIES[:n_families], np.cumsum(counts).tolist(), strict=False))

    @property
    def n_terms(self) -> int:
        """The number of terms."""
        return self.sizes[self.basis.families[-1]]

    @property
    def families(self) -> tuple[str, ...]:
        """The families to choose between, without those that add no term."""
        by_size: dict[int, str] = {}
        for family in self.basis.families:
            by_size.setdefault(self.sizes[family], family)
        return tuple(by_size.values())

    def usable(self, n_terms: int, screenings: Collection[int] = (-1,)) -> IntArray:
        """The places of the first terms, without those that any of these screenings did not find.

        Screenings are without the fold of their number; the last one is of all rows. A study that
        does not screen fold by fold may use all terms.
        """
        if self.basis.found_by_fold is None:
            return np.arange(n_terms)
        found = set.intersection(*(self._of_screening[place] for place in screenings))
        return np.array([n for n in range(n_terms) if self._identities[n] in found], np.int64)

    @cached_property
    def _of_screening(self) -> list[set[tuple[Any, ...]]]:
        """By screening, the terms that there would be if it were the only one."""
        n_screenings = len(self.basis.found_by_fold or ())
        bases = map(self.basis.of_screening, range(n_screenings))
        return [set(Terms(basis, self.features)._identities) for basis in bases]

    @cached_property
    def _identities(self) -> list[tuple[Any, ...]]:  # (n_terms,)
        """What each term is, wherever it comes among others."""
        parts = {
            "feature": range(len(self.features)),
            "jump": self.jumps,
            "corner": [(self.jumps[a], self.jumps[b]) for a, b in self._corners],
            "hinge": self._hinges,
            "product": self._products,
            "step": self._steps,
            "product of steps": self._step_products,
            "wave": range(len(self._waves)),
        }
        return [(kind, one) for kind, own in parts.items() for one in own]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of terms: `age`, `age > 63`, `age above 63`, `age × dose`, `wave 1 of age`."""
        names, middle = self.features, self.scaled.middle
        jumps = [f"{names[place]} > {cut:g}" for place, cut in self.jumps]
        step = {place: f"{names[place]} past {middle[place]:g}" for place in self._steps}
        return (
            *names,
            *jumps,
            *(f"{jumps[a]} and {jumps[b]}" for a, b in self._corners),
            *(f"{names[place]} above {knot:g}" for place, knot in self._hinges),
            *(f"{names[a]} × {names[b]}" for a, b in self._products),
            *step.values(),
            *(f"{step[a]} × {step[b]}" for a, b in self._step_products),
            *self._waves.names(names),
        )

    @cached_property
    def sources(self) -> tuple[tuple[int, ...], ...]:
        """For each term, the positions of the features that it is computed from."""
        return (
            *((place,) for place in range(len(self.features))),
            *((place,) for place, _ in self.jumps),
            *((self.jumps[a][0], self.jumps[b][0]) for a, b in self._corners),
            *((place,) for place, _ in self._hinges),
            *self._products,
            *((place,) for place in self._steps),
            *self._step_products,
            *self._waves.sources,
        )

    @cached_property
    def factors(self) -> dict[int, tuple[Factor, Factor]]:
        """For each product, by its position among terms, its two factors.

        A feature in a product is clamped beyond the outer knots; the term of the feature itself is
        not.
        """
        scaled = self.scaled
        plain = [
            Factor(place, float(scaled.middle[place]), 1 / float(scaled.unit[place]))
            for place in range(len(self.features))
        ]
        kinds = [kind for kind, _ in self._identities]
        beyond = [Factor(n, 0.0, 1.0) for n, kind in enumerate(kinds) if kind == "jump"]
        steps = [Factor(n, 0.0, 1.0) for n, kind in enumerate(kinds) if kind == "step"]
        risen = dict(zip(self._steps, steps, strict=True))
        pairs = [(beyond[a], beyond[b]) for a, b in self._corners]
        pairs += [(plain[a], plain[b]) for a, b in self._products]
        pairs += [(risen[a], risen[b]) for a, b in self._step_products]
        products = ("corner", "product", "product of steps")
        places = (n for n, kind in enumerate(kinds) if kind in products)
        return dict(zip(places, pairs, strict=True))

    @cached_property
    def varying(self) -> dict[int, tuple[Stretch, Stretch]]:
        """For each product, by its position among terms, the ranges over which its factors vary."""
        scaled = self.scaled
        ends = zip(scaled.lowest.tolist(), scaled.highest.tolist(), strict=True)
        whole = [Stretch(place, low, high) for place, (low, high) in enumerate(ends)]
        low, high = scaled.middle - scaled.unit / 2, scaled.middle + scaled.unit / 2
        rising = {
            place: Stretch(place, float(low[place]), float(high[place])) for place in self._steps
        }
        jumps = [Stretch(at, cut, math.nextafter(cut, math.inf)) for at, cut in self.jumps]
        pairs = [(jumps[a], jumps[b]) for a, b in self._corners]
        pairs += [(whole[a], whole[b]) for a, b in self._products]
        pairs += [(rising[a], rising[b]) for a, b in self._step_products]
        return dict(zip(self.factors, pairs, strict=True))

    def of(
        self, contexts: FloatArray, n_terms: int | None = None
    ) -> FloatArray:  # (n_rows, n_terms)
        """The terms of these contexts, or only the first `n_terms`."""
        wanted = self.n_terms if n_terms is None else n_terms
        if wanted <= len(self.features):
            return contexts[:, :wanted]
        found = np.empty((self.n_terms, len(contexts)))  # written term by term
        self._write(contexts, found, wanted)
        return found[:wanted].T

    def _write(self, contexts: FloatArray, found: FloatArray, wanted: int) -> None:
        """Write at least the first terms that are wanted, (n_terms, n_rows)."""
        n_features = len(self.features)
        found[:n_features] = contexts.T
        start = self._write_jumps(found)
        if start >= wanted:
            return
        # One number at a time, as its values stay in a core's cache.
        scaled = self.scaled.of_columns(found[:n_features])
        for place, own, knots in self._hinges_by_number:
            hinges = found[start + own.start : start + own.stop]
            np.subtract(scaled[place], knots, out=hinges)
            np.clip(hinges, 0.0, np.inf, out=hinges)  # in half the time of np.maximum
        start += len(self._hinges)
        if start < wanted:
            start = _multiply(scaled, self._products, found, start)
        if start < wanted:
            risen = found[start : start + len(self._steps)]
            for place, onto in zip(self._steps, risen, strict=True):
                _write_smooth_step(scaled[place], onto)
            start += len(self._steps)
            at = {place: n for n, place in enumerate(self._steps)}
            pairs = [(at[a], at[b]) for a, b in self._step_products]
            start = _multiply(risen, pairs, found, start)
        if start < wanted:
            self._waves.write(scaled.T, found[start:].T)

    @cached_property
    def _hinges_by_number(self) -> list[tuple[int, slice, FloatArray]]:
        """Each number's place, which hinges are its own, and their knots (n_own, 1) in its unit."""
        found, start = [], 0
        for place, own in groupby(self._hinges, key=lambda hinge: hinge[0]):
            knots = np.array([[self.scaled.at(place, knot)] for _, knot in own])
            found.append((place, slice(start, start + len(knots)), knots))
            start += len(knots)
        return found

    def _write_jumps(self, onto: FloatArray) -> int:
        """Write whether numbers exceed thresholds; return where the next terms begin."""
        start = len(self.features)
        for position, (place, cut) in enumerate(self.jumps, start):
            np.greater(onto[place], cut, out=onto[position], casting="unsafe")
        after = start + len(self.jumps)
        return _multiply(onto[start:after], self._corners, onto, after)

    def written_in(self, target: Target[Term], n_terms: int) -> list[tuple[str, Term]]:
        """The terms of the simplest family with at least `n_terms` terms, in another language."""
        family = next(family for family, size in self.sizes.items() if size >= n_terms)
        terms = target.features()
        if family == "linear":
            return list(zip(self.features, terms, strict=True))
        terms += self._jumps_in(target, terms)
        if family == "thresholds":
            return list(zip(self.names[: len(terms)], terms, strict=True))
        scaled = self._scaled_in(target, terms, self.sources[len(terms) : self.sizes[family]])
        at = self.scaled.at
        terms += [target.above(scaled[place], at(place, knot)) for place, knot in self._hinges]
        richest = FAMILIES.index(family)
        if richest >= FAMILIES.index("splines"):
            terms += [target.product(scaled[a], scaled[b]) for a, b in self._products]
        if richest >= FAMILIES.index("steps"):
            names = self.names[len(terms) : len(terms) + len(self._steps)]
            steps = self._steps_in(target, names, [scaled[place] for place in self._steps])
            risen = dict(zip(self._steps, steps, strict=True))
            terms += risen.values()
            terms += [target.product(risen[a], risen[b]) for a, b in self._step_products]
        if richest >= FAMILIES.index("waves"):
            terms += self._waves.written_in(target, scaled)
        return list(zip(self.names[: len(terms)], terms, strict=True))

    def _jumps_in(self, target: Target[Term], features: list[Term]) -> list[Term]:
        """Whether these numbers exceed thresholds, in another language."""
        beyond = [
            target.flag(target.negated(target.at_most(features[place], cut)))
            for place, cut in self.jumps
        ]
        names = self.names[len(features) : len(features) + len(beyond)]
        beyond = target.kept("beyond", names, beyond) if beyond else []
        return [*beyond, *(target.product(beyond[a], beyond[b]) for a, b in self._corners)]

    def _steps_in(
        self, target: Target[Term], names: Sequence[str], scaled: list[Term]
    ) -> list[Term]:
        """Soft steps of these numbers, in another language."""
        shares = [target.in_units(target.between(z, -0.5, 0.5), -0.5, 1.0) for z in scaled]
        shares = target.kept("share", names, shares)
        squares = target.kept("square", names, [target.product(u, u) for u in shares])
        others = target.kept("other", names, [target.in_units(u, 1.5, -0.5) for u in shares])
        steps = [target.product(one, two) for one, two in zip(squares, others, strict=True)]
        return target.kept("risen", names, steps)

    def _scaled_in(
        self, target: Target[Term], features: list[Term], sources: Sequence[tuple[int, ...]]
    ) -> dict[int, Term]:
        """The scaled features that these terms need, in another language."""
        used = sorted({place for own in sources for place in own})
        numbers = [self.scaled.written_in(target, features[place], place) for place in used]
        kept = target.kept("scaled", [self.features[place] for place in used], numbers)
        return dict(zip(used, kept, strict=True))


@dataclass(frozen=True, eq=False, kw_only=True)
class _Scaling:
    """Measures numbers from their middle knot, in half the distance between the outer knots."""

    middle: FloatArray  # (n_features,)
    unit: FloatArray  # (n_features,)
    lowest: FloatArray  # (n_features,)
    highest: FloatArray  # (n_features,)

    @classmethod
    def of(cls, basis: Basis, place: dict[str, int]) -> Self:
        n_features = len(place)
        middle, unit = np.zeros(n_features), np.ones(n_features)
        lowest, highest = np.full(n_features, -np.inf), np.full(n_features, np.inf)
        for name, knots in basis.knots.items():
            at, apart = place[name], knots[-1] - knots[0]
            middle[at], unit[at] = knots[len(knots) // 2], apart / 2
            lowest[at], highest[at] = knots[0] - apart, knots[-1] + apart
        return cls(middle=middle, unit=unit, lowest=lowest, highest=highest)

    def __call__(self, contexts: FloatArray) -> FloatArray:  # shaped as contexts
        """Each number, clamped and in its own unit; features without knots stay unchanged."""
        clamped = np.clip(contexts, self.lowest, self.highest, order="F")
        clamped -= self.middle
        clamped /= self.unit
        return clamped

    def of_columns(self, columns: FloatArray) -> FloatArray:  # shaped as columns
        """The same of columns, (n_features, n_rows)."""
        clamped = np.empty(columns.shape)
        for place, (own, onto) in enumerate(zip(columns, clamped, strict=True)):
            np.clip(own, self.lowest[place], self.highest[place], out=onto)
            onto -= self.middle[place]
            onto /= self.unit[place]
        return clamped

    def written_in(self, target: Target[Term], number: Term, place: int) -> Term:
        """One number, in another language."""
        if not np.isfinite(self.lowest[place]):
            return number
        clamped = target.between(number, float(self.lowest[place]), float(self.highest[place]))
        return target.in_units(clamped, float(self.middle[place]), float(self.unit[place]))

    def at(self, place: int, value: float) -> float:
        return float((value - self.middle[place]) / self.unit[place])


def _write_smooth_step(scaled: FloatArray, onto: FloatArray) -> None:
    """From 0, half a unit below the middle, to 1 half a unit above it: u²(3 − 2u)."""
    share = np.clip(scaled, -0.5, 0.5)
    share += 0.5
    np.square(share, out=onto)
    share -= 1.5
    share *= -2.0
    onto *= share


def _multiply(
    columns: FloatArray, pairs: list[tuple[int, int]], onto: FloatArray, start: int
) -> int:
    """Write products of these columns from term `start` on; return where the next terms begin."""
    for position, (first, second) in enumerate(pairs, start):
        np.multiply(columns[first], columns[second], out=onto[position])
    return start + len(pairs)
