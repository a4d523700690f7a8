"""Formats numbers: as many digits as the uncertainty justifies, and a true minus sign."""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from fedopl.base.estimates import Estimate

_MOST_DECIMALS = 6
_AS_GOOD_AS_SAME = 1e-6  # of the largest number
_UNITS = ("bytes", "KB", "MB", "GB", "TB")


@dataclass(frozen=True, kw_only=True)
class Span:
    """A number and its interval, both in the units shown."""

    value: float
    low: float
    high: float
    level: float = 0.95
    decimals: int | None = None  # where not those that the interval leaves
    one_group: bool = False  # all rows are of one group, which shows no spread

    @classmethod
    def of(cls, estimate: Estimate, level: float = 0.95) -> "Span":
        """The estimate with its interval."""
        low, high = estimate.interval(level)
        one_group = estimate.degrees_of_freedom < 1 < estimate.n_rows
        return cls(value=estimate.value, low=low, high=high, level=level, one_group=one_group)

    @property
    def is_known(self) -> bool:
        """Whether there were enough rows for an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def is_nothing(self) -> bool:
        """Whether the two policies never differed."""
        return self.value == self.low == self.high == 0

    @property
    def number(self) -> str:
        """The number alone."""
        return decimal(self.value, self.fitting_decimals)

    @property
    def interval(self) -> str:
        """The interval alone."""
        if not self.is_known:
            return "1 group: cannot tell" if self.one_group else "too few rows to tell"
        places = self.fitting_decimals
        return f"{decimal(self.low, places)} to {decimal(self.high, places)}"

    @property
    def in_lines(self) -> str:
        """The number, and below it the interval."""
        return f"{self.number}\n({self.interval})"

    def __str__(self) -> str:
        return f"{self.number} ({percent(self.level)} interval {self.interval})"

    @property
    def fitting_decimals(self) -> int | None:
        """Decimals for two digits of the uncertainty; more if an end would be rounded to zero."""
        if self.decimals is not None:
            return self.decimals
        reach = (self.high - self.low) / 2
        if not self.is_known or reach == 0:
            return None
        least = 1 - math.floor(math.log10(reach))
        ends = [end for end in (self.low, self.high) if end]
        for decimals in range(least, _MOST_DECIMALS):
            if all(round(end, decimals) for end in ends):
                return decimals
        return max(least, _MOST_DECIMALS)


def alike(spans: list[Span]) -> list[Span]:
    """The spans with the number of decimals of the most precise one, for columns."""
    known = [span.fitting_decimals for span in spans]
    decimals = max((places for places in known if places is not None), default=None)
    return [replace(span, decimals=decimals) for span in spans]


def decimal(value: float, decimals: int | None = None) -> str:
    """The number with this many decimals (tens and hundreds below zero), or with three digits."""
    if not math.isfinite(value):
        return "not known"
    if decimals is None:
        size = math.floor(math.log10(abs(value))) if value else 0
        decimals = max(0, 2 - size)
    rounded = round(value, decimals)
    text = f"{rounded:,.{max(decimals, 0)}f}" if decimals <= _MOST_DECIMALS else f"{value:.3g}"
    # A value that was rounded to zero gets no sign.
    if not any(digit in text for digit in "123456789"):
        text = text.removeprefix("-")
    return text.replace("-", "−")


def told_apart(values: Sequence[float]) -> list[str]:
    """Numbers with enough digits to distinguish any two that differ by more than rounding."""
    same = _AS_GOOD_AS_SAME * max(map(abs, values))
    gaps = [above - below for below, above in pairwise(sorted(values)) if above - below > same]
    decimals = max(1 - math.floor(math.log10(min(gaps))), 2) if gaps else 2
    if decimals <= _MOST_DECIMALS:
        return [decimal(value, decimals) for value in values]
    digits = decimals + math.ceil(math.log10(max(map(abs, values))))
    return [f"{value:.{digits}g}".replace("-", "−") for value in values]


def has_error(estimate: Estimate) -> bool:
    """Whether rows varied enough for a standard error; a few rows with one value do not."""
    return estimate.standard_error > 1e-6 * abs(estimate.value)


def with_error(estimate: Estimate, decimals: int = 0) -> str:
    """The value and its standard error, with one digit of the error and at least these decimals."""
    if not has_error(estimate):
        return f"{decimal(estimate.value, decimals)} ± ?"
    decimals = max(decimals, -math.floor(math.log10(estimate.standard_error)))
    return f"{decimal(estimate.value, decimals)} ± {decimal(estimate.standard_error, decimals)}"


def common_decimals(estimates: list[Estimate]) -> int:
    """The number of decimals that leaves two digits of the typical standard error."""
    errors = [estimate.standard_error for estimate in estimates if has_error(estimate)]
    return 1 - math.floor(math.log10(median(errors))) if errors else 2


def plain(number: float, digits: int = 6) -> str:
    """A number that somebody set, without trailing digits."""
    # From a million on, this many digits would be written with a power of ten.
    large = abs(number) >= 10**digits and math.isfinite(number)
    return (f"{number:,.0f}" if large else f"{number:,.{digits}g}").replace("-", "−")


def percent(share: float) -> str:
    """A share of one as per cent, with a decimal only if it matters."""
    number = 100 * share
    shown = round(number, 1)
    if 0 < number < 0.1:
        return "under 0.1 %"
    return f"{shown:.0f} %" if shown == round(shown) or number >= 99.95 else f"{shown:.1f} %"


def whole_percent(share: float) -> str:
    """A share of one as whole per cent, for columns."""
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def count(number: float) -> str:
    """A whole number."""
    return f"{number:,.0f}"


def size(n_bytes: int) -> str:
    """A number of bytes."""
    amount = float(n_bytes)
    for unit in _UNITS:
        if amount < 1000 or unit == _UNITS[-1]:
            break
        amount /= 1000
    return f"{n_bytes:,} bytes" if unit == "bytes" else f"{amount:.3g} {unit}"


def plural(number: int, one: str, many: str | None = None) -> str:
    """'1 client', '3 clients'."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(texts: list[str], most: int = 5, joint: str = "and") -> str:
    """'a, b and c'; beyond `most`, the number of the remaining ones."""
    if len(texts) > most:
        texts = [*texts[: most - 1], f"{len(texts) - most + 1:,} more"]
    if len(texts) < 2:
        return "".join(texts)
    return f"{', '.join(texts[:-1])} {joint} {texts[-1]}"


# These characters reverse the direction of text, so that one name reads as another.
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def printable(text: str) -> str:
    """The text without control characters."""
    return "".join(letter if _is_read(letter) else "�" for letter in text)


def _is_read(letter: str) -> bool:
    if letter in "\n\t":
        return True
    return unicodedata.category(letter) not in ("Cc", "Cs") and letter not in _TURNING
