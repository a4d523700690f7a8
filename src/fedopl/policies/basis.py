"""The basis: public functions of features in which outcome models and policies are linear.

Where effects are not linear in x, a model in hinges, products and steps of x can still fit. A study
agrees on these functions before anything is summed. So the sums of all clients have the same terms,
and models and policies are still solved from sums.
"""

import math
from functools import lru_cache
from itertools import chain, combinations, pairwise
from typing import Any, Literal, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from fedopl.base.labels import quoted
from fedopl.base.validation import Checked, PlacedError
from fedopl.base.whole_numbers import LEAST, MOST

# From the simplest to the richest; each has the terms of the families before it, and more.
FAMILIES = ("linear", "thresholds", "hinges", "splines", "steps", "waves")
# Sums grow with the square of the number of terms, and larger numbers than this overflow.
MOST_KNOTS, LARGEST_KNOT = 20, 1e15
# Screening more pairs is pointless: each pair is a term, and sums grow with their square.
MOST_PAIRS_FOUND = 200
MOST_THRESHOLDS_FOUND = 20
# In half the distance between the outer knots: narrower waves could separate neighbouring rows.
NARROWEST_WAVE, WIDEST_WAVE = 1.0, 20.0
MOST_WAVES, USUAL_WIDTH = 1_000, 1.5

NamedPair = tuple[str, str]
NamedCut = tuple[str, float]
# One number above a threshold, or two numbers both above theirs.
Threshold = tuple[NamedCut, ...]


class Basis(Checked):
    """The numbers whose effects may bend, and the features that may act together."""

    kind: Literal["auto", "hinges", "splines", "steps", "waves"] = Field(
        default="auto",
        description="which terms there are; auto: all of them, of which those with the least "
        "loss out of fold are used",
    )
    knots: dict[str, tuple[float, ...]] = Field(
        min_length=1,
        description="for each number whose effect may bend, two or more values, rising",
    )
    products: tuple[str, ...] = Field(
        default=(), description="features of which any two may act together"
    )
    pairs: tuple[NamedPair, ...] = Field(
        default=(), description="pairs of features that may act together, beside those of products"
    )
    screened_pairs: int = Field(
        default=0,
        ge=0,
        le=MOST_PAIRS_FOUND,
        description="the largest number of pairs to add after screening all pairs; 0 for none",
    )
    found_pairs: tuple[NamedPair, ...] | None = Field(
        default=None, description="what screening found; a run fills it in"
    )
    screened_thresholds: int = Field(
        default=0,
        ge=0,
        le=MOST_THRESHOLDS_FOUND,
        description="the largest number of values, or corners of two, to add where outcomes are "
        "found to jump; 0 for none",
    )
    found_thresholds: tuple[Threshold, ...] | None = Field(
        default=None, description="what screening found; a run fills it in"
    )
    found_by_fold: tuple[tuple[int, ...], ...] | None = Field(
        default=None,
        min_length=2,
        description="if values are cross-fitted, the terms found without each fold and, last, with "
        "all rows: their places among all that were found, pairs first; a run fills it in",
    )

    waves: int = Field(
        default=0,
        ge=0,
        le=MOST_WAVES,
        description="number of waves drawn at random, each a function of several numbers with "
        "knots; 0 for none",
    )
    wave_width: float = Field(
        default=USUAL_WIDTH,
        ge=NARROWEST_WAVE,
        le=WIDEST_WAVE,
        description="width of waves, in units of half the distance of a number's outer knots",
    )
    wave_seed: int = Field(
        default=0, ge=LEAST, le=MOST, description="decides which waves are drawn"
    )

    @field_validator("kind", mode="before")
    @classmethod
    def _bends(cls, kind: object) -> object:
        if kind == "linear":
            raise ValueError(
                "came 'linear'; a study without [basis] is linear, so leave the section out"
            )
        return kind

    @model_serializer(mode="wrap")
    def _without_what_is_usual(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Only products existed when studies were first hashed and policies first saved.
        always, fields = ("kind", "knots", "products"), type(self).model_fields
        said: dict[str, Any] = plain(self)
        usual = {name for name in said if getattr(self, name) == fields[name].default}
        return {name: value for name, value in said.items() if name in always or name not in usual}

    @model_validator(mode="after")
    def _has_each_pair_once(self) -> Self:
        seen = {frozenset(pair) for pair in combinations(self.products, 2)}
        for field, pairs in (("pairs", self.pairs), ("found_pairs", self.found_pairs or ())):
            for pair in pairs:
                both = frozenset(pair)
                if len(both) < 2 or both in seen:
                    fault = "is named twice" if both in seen else "is one feature"
                    message = f"{quoted(pair)} {fault}; expected two features, each pair once"
                    raise PlacedError(field, message, (field,))
                seen.add(both)
        return self

    @model_validator(mode="after")
    def _has_found_what_it_screened_for(self) -> Self:
        found = (*(self.found_pairs or ()), *(self.found_thresholds or ()))
        by_fold = self.found_by_fold
        if by_fold is not None and {*chain(*by_fold)} != {*range(len(found))}:
            message = f"expected each place among {len(found):,} terms, and no other"
            raise PlacedError("found_by_fold", message, ("found_by_fold",))
        for own in map(self.of_screening, range(len(by_fold or ((),)))):
            own._check_found_thresholds()
            for field in ("pairs", "thresholds"):
                most = getattr(self, f"screened_{field}")
                if len(getattr(own, f"found_{field}") or ()) > most:
                    message = f"more than screened_{field}, {most}"
                    raise PlacedError(f"found_{field}", message, (f"found_{field}",))
        if len({*found}) < len(found):
            raise PlacedError("found_thresholds", "one is named twice", ("found_thresholds",))
        return self

    def _check_found_thresholds(self) -> None:
        seen: set[tuple[NamedCut | str, ...]] = set()
        for found in self.found_thresholds or ():
            names = tuple(name for name, _ in found)
            # Two corners of the same two numbers would differ by a strip that may hold few rows.
            key = found if len(found) == 1 else tuple(sorted(names))
            if fault := self._fault_of(found) or ("is named twice" if key in seen else None):
                message = f"{quoted(names)} {fault}"
                raise PlacedError("found_thresholds", message, ("found_thresholds",))
            seen.add(key)

    def _fault_of(self, found: Threshold) -> str | None:
        if not 1 <= len(found) <= 2:
            return f"are {len(found)} numbers; expected one, or two that act together"
        if len({name for name, _ in found}) < len(found):
            return "is one number; expected two different ones"
        for name, cut in found:
            if name not in self.knots:
                return "has no knots, so it has no grid of values to be divided at"
            grid = candidate_cuts(self.knots[name])
            if cut not in grid:
                nearest = min(grid, key=lambda value: abs(value - cut))
                return (
                    f"may not be divided at {cut:g}; the nearest value of its grid is {nearest:g}"
                )
        return None

    @model_validator(mode="after")
    def _has_rising_knots_and_waves_where_it_uses_them(self) -> Self:
        for name, knots in self.knots.items():
            if expected := lacking(knots):
                raise PlacedError("knots", f"'{name}': expected {expected}", ("knots",))
        if len(set(self.products)) < len(self.products):
            raise PlacedError("products", "a feature is named twice", ("products",))
        if self.kind == "waves" and not self.waves:
            message = 'expected how many there are, as kind is "waves"; 200 is usual'
            raise PlacedError("waves", message, ("waves",))
        if self.waves and self.kind not in ("auto", "waves"):
            message = f'kind = "{self.kind}" has none; expected "waves" or "auto"'
            raise PlacedError("waves", message, ("waves",))
        return self

    @property
    def families(self) -> tuple[str, ...]:
        """The nested sets of terms that learning may choose between."""
        if self.kind != "auto":
            return (self.kind,)
        return FAMILIES if self.waves else FAMILIES[:-1]

    @property
    def multiplied(self) -> tuple[NamedPair, ...]:
        """All pairs of features that may act together."""
        return (*combinations(self.products, 2), *self.pairs, *(self.found_pairs or ()))

    @property
    def is_screened(self) -> bool:
        """Whether the result of screening is known; otherwise clients must be asked first."""
        pairs_known = not self.screened_pairs or self.found_pairs is not None
        return pairs_known and (not self.screened_thresholds or self.found_thresholds is not None)

    @property
    def screens(self) -> bool:
        """Whether screening, which asks clients first, finds some of the terms."""
        return bool(self.screened_pairs or self.screened_thresholds)

    def before_screening(self) -> "Basis":
        """The same basis without the terms that screening found."""
        nothing = {"found_pairs": None, "found_thresholds": None, "found_by_fold": None}
        return self.model_copy(update=nothing)

    def of_screening(self, screening: int) -> "Basis":
        """The same basis with only the terms that one screening found.

        It is the one without the fold of this number or, as the last one, that of all rows.
        """
        if self.found_by_fold is None:
            return self
        places, pairs = self.found_by_fold[screening], self.found_pairs or ()
        terms = (*pairs, *(self.found_thresholds or ()))
        found = {
            "found_pairs": [terms[place] for place in places if place < len(pairs)],
            "found_thresholds": [terms[place] for place in places if place >= len(pairs)],
        }
        kept = {name: tuple(own) for name, own in found.items() if getattr(self, name) is not None}
        return self.model_copy(update={"found_by_fold": None, **kept})

    def unknown(self, features: tuple[str, ...]) -> str | None:
        """The names in the basis that are no features, in words; None if there are none."""
        paired = (name for pair in self.multiplied for name in pair)
        named = (*self.knots, *self.products, *paired)
        missing = [name for name in named if name not in features]
        return f"{quoted(sorted(set(missing)))} is no feature" if missing else None


def lacking(knots: tuple[float, ...]) -> str | None:
    """Which requirement on knots is not met, in words; None if all are met."""
    if len(knots) < 2 or any(low >= high for low, high in pairwise(knots)):
        return "two or more, rising"
    if len(knots) > MOST_KNOTS:
        return f"at most {MOST_KNOTS}, came {len(knots)}"
    if max(map(abs, knots)) > LARGEST_KNOT:
        return f"numbers of at most {LARGEST_KNOT:g}"
    if len({f"{knot:g}" for knot in knots}) < len(knots):  # their terms would have the same name
        return "knots that differ in their first six digits"
    return None


# The grid of a number has this many parts; one threshold is reported from each.
N_PARTS_OF_GRID = 8
FIRST_ONE_IN = 5
_MOST_CUTS = 96 * FIRST_ONE_IN
_REACH = 0.25
_ROUND = (1.0, 2.0, 2.5, 4.0, 5.0, 8.0, 10.0)


def candidate_cuts(knots: tuple[float, ...]) -> tuple[float, ...]:
    """The thresholds at which rows may be divided, ascending: round values, alike at all clients.

    They reach beyond the outer knots by a quarter of the distance between these. Few rows lie
    further out, and effects seen in few rows are not searched for.
    """
    return _grid(knots)[0]


def first_looked_at(knots: tuple[float, ...]) -> tuple[int, ...]:
    """The positions of the candidates that are examined first: one in five, the roundest."""
    return _grid(knots)[1]


def part_of_grid(cut: int, n_cuts: int) -> int:
    """The part of the grid that contains a cut, given by its position."""
    return cut * N_PARTS_OF_GRID // n_cuts


@lru_cache(1024)
def _grid(knots: tuple[float, ...]) -> tuple[tuple[float, ...], tuple[int, ...]]:
    beyond = _REACH * (knots[-1] - knots[0])
    low, high = knots[0] - beyond, knots[-1] + beyond
    least = (high - low) / _MOST_CUTS
    size = math.floor(math.log10(least))
    step = next(one for one in _ROUND if one * 10.0**size >= least * (1 - 1e-9))
    unit, digits = step * 10.0**size, 1 - size
    multiples = range(math.ceil(low / unit), math.floor(high / unit) + 1)
    cuts = tuple(round(times * unit, digits) + 0.0 for times in multiples)
    return cuts, tuple(at for at, times in enumerate(multiples) if times % FIRST_ONE_IN == 0)
