"""Conditions like `kidney_function < 30 and ward in icu, er`: parsed, never run as code."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, nextafter
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.base.labels import quoted
from fedopl.policies.tree_columns import Column, LevelColumn

MISSING, NOT_MISSING = "is missing", "is not missing"
_ORDER = ("<", "<=", ">", ">=")
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'[^']*'|"[^"]*")|(?P<sign><=|>=|==|[<>=,()\[\]])|(?P<word>[^\s<>=,()\[\]'"]+))"""
)
_PLAIN = re.compile(r"[^\s<>=,()\[\]'\"]+")
_WORDS = frozenset({"and", "in", "is"})
_EXPECTED = (
    "expected comparisons such as kidney_function < 30, ward = icu, ward in icu, er or age is "
    "missing, joined by 'and'; names and labels with other signs stand in quotation marks"
)


@dataclass(frozen=True)
class Region:
    """The values of one column that a condition covers: a range of numbers, or levels, or none."""

    low: float = -inf
    high: float = inf
    levels: frozenset[int] | None = None  # of a column of labels; a missing label is one of them
    missing: bool = False  # whether it holds for a missing number

    @property
    def is_empty(self) -> bool:
        """Whether the region contains no value."""
        if self.levels is not None:
            return not self.levels
        return self.low > self.high and not self.missing

    def within(self, other: "Region") -> "Region":
        """The values that lie in both regions."""
        if self.levels is not None and other.levels is not None:
            return Region(levels=self.levels & other.levels)
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Region(low=low, high=high, missing=self.missing and other.missing)


class PlacedColumn(NamedTuple):
    """A column, and the column that marks its missing numbers, if gaps are marked."""

    column: Column
    mark: LevelColumn | None

    @property
    def is_marked(self) -> bool:
        """Whether a missing value counts as one more value."""
        if isinstance(self.column, LevelColumn):
            return None in self.column.levels
        return self.mark is not None


def place_of(name: str, columns: Sequence[Column]) -> PlacedColumn:
    """The position of this column in contexts; a ValueError if they do not have it."""
    known = {column.name: column for column in columns}
    marks = {f"{name} {MISSING}" for name in known}
    if name not in known:
        offered = quoted([one for one in known if one not in marks])
        raise ValueError(f"there is no feature '{name}'; there are {offered}")
    mark = known.get(f"{name} {MISSING}")
    return PlacedColumn(known[name], mark if isinstance(mark, LevelColumn) else None)


@dataclass(frozen=True)
class Compared:
    """A comparison of one feature with a number or with some labels.

    If a row's value is missing, the condition counts as true there, since it is not known to be
    false.
    """

    column: str
    sign: str  # one of < <= > >= =, in, MISSING, NOT_MISSING
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        beside = [_spelled(value) for value in self.values]
        return " ".join(filter(None, (_spelled(self.column), self.sign, ", ".join(beside))))

    @property
    def number(self) -> float:
        """The number to compare with; a ValueError if it is not a number."""
        try:
            found = float(self.values[0])
        except ValueError:
            found = inf
        if not isfinite(found):
            raise ValueError(f"'{self.column}' is a number; expected one beside it in '{self}'")
        return found

    def region(self, place: PlacedColumn) -> Region:
        """The values for which it holds; a ValueError if it does not fit this column."""
        if self.sign in (MISSING, NOT_MISSING) and not place.is_marked:
            raise ValueError(
                f"'{self}': rows with gaps are refused or left out of this study; only "
                'missing = "indicator" under [rows] makes a missing value one more value'
            )
        if isinstance(place.column, LevelColumn):
            return Region(levels=frozenset(self._levels(place.column)))
        if self.sign == MISSING:
            return Region(low=inf, high=-inf, missing=True)
        if self.sign == NOT_MISSING:
            return Region()
        return replace(self._between(), missing=place.is_marked)

    def _between(self) -> Region:
        if self.sign == "in":
            raise ValueError(f"'{self.column}' is a number; compare it by < <= > >= or =")
        low, high, number = -inf, inf, self.number
        if self.sign in ("<", "<=", "="):
            high = nextafter(number, -inf) if self.sign == "<" else number
        if self.sign in (">", ">=", "="):
            low = nextafter(number, inf) if self.sign == ">" else number
        return Region(low=low, high=high)

    def _levels(self, column: LevelColumn) -> set[int]:
        known = {level: place for place, level in enumerate(column.levels)}
        gaps = {known[None]} if None in known else set()
        if self.sign == MISSING:
            return gaps
        if self.sign == NOT_MISSING:
            return set(known.values()) - gaps
        if self.sign in _ORDER:
            raise ValueError(f"'{column.name}' has labels; compare it by = or in")
        unknown = [value for value in self.values if value not in known]
        if unknown:
            offered = quoted([level for level in known if level is not None])
            raise ValueError(f"{quoted(unknown)} is no level of '{column.name}'; it has {offered}")
        return {known[value] for value in self.values} | gaps

    def holds(self, columns: Sequence[Column], contexts: FloatArray) -> BoolArray:  # (n_rows,)
        """Whether the comparison holds, by row."""
        place = place_of(self.column, columns)
        region, values = self.region(place), place.column.values(contexts)
        if region.levels is not None:
            return np.isin(values, list(region.levels))
        between = (values >= region.low) & (values <= region.high)
        if place.mark is None:
            return between
        return np.where(place.mark.values(contexts) > 0, region.missing, between)


def read_condition(text: str) -> tuple[Compared, ...]:
    """The comparisons that a text joins by 'and'; a ValueError if the text is anything else."""
    tokens = _tokens(text)
    found, start = [], 0
    for place in [n for n, one in enumerate(tokens) if one == ("word", "and")] + [len(tokens)]:
        found.append(_comparison(tokens[start:place], text))
        start = place + 1
    return tuple(found)


Token = tuple[str, str]  # "text", "sign" or "word", and what it says


def _tokens(text: str) -> list[Token]:
    tokens, at = [], 0
    while at < len(text.rstrip()):
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise ValueError(f"'{text}' cannot be read; {_EXPECTED}")
        said = found[found.lastgroup]
        tokens.append((found.lastgroup, said[1:-1] if found.lastgroup == "text" else said))
        at = found.end()
    return tokens


def _comparison(tokens: list[Token], text: str) -> Compared:
    signs = [
        place
        for place, (kind, said) in enumerate(tokens)
        if (kind == "sign" and said in (*_ORDER, "=", "=="))
        or (kind == "word" and said in ("in", "is"))
    ]
    if not signs or signs[0] == 0:
        raise ValueError(f"'{text}' cannot be read; {_EXPECTED}")
    name, sign = _phrase(tokens[: signs[0]], text), tokens[signs[0]][1].replace("==", "=")
    rest = tokens[signs[0] + 1 :]
    if sign == "is":
        words = " ".join(["is", *(said for _, said in rest)])
        if words not in (MISSING, NOT_MISSING):
            raise ValueError(f"'{text}' cannot be read; {_EXPECTED}")
        return Compared(name, words)
    values = _values(rest, text)
    if len(values) > 1 and sign != "in":
        raise ValueError(f"'{text}' compares with several values; say in")
    return Compared(name, sign, values)


def _values(tokens: list[Token], text: str) -> tuple[str, ...]:
    """The values between commas, with or without brackets."""
    if len(tokens) > 1 and (tokens[0][1], tokens[-1][1]) in (("(", ")"), ("[", "]")):
        tokens = tokens[1:-1]
    found, own = [], list[Token]()
    for token in [*tokens, ("sign", ",")]:
        if token == ("sign", ","):
            found.append(_phrase(own, text))
            own = []
        else:
            own.append(token)
    return tuple(found)


def _phrase(tokens: list[Token], text: str) -> str:
    """A name or label: one text in quotation marks, or several words."""
    kinds = {kind for kind, _ in tokens}
    if not tokens or "sign" in kinds or ("text" in kinds and len(tokens) > 1):
        raise ValueError(f"'{text}' cannot be read; {_EXPECTED}")
    return " ".join(said for _, said in tokens)


def _spelled(name: str) -> str:
    """A name or label, quoted if needed, so that it can be parsed again."""
    words = name.split(" ")
    if all(_PLAIN.fullmatch(word) and word not in _WORDS for word in words):
        return name
    mark = "'" if '"' in name else '"'
    return f"{mark}{name}{mark}"
