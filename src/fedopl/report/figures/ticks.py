"""Ticks of an axis: short, distinct numbers, and no more ticks than fit."""

import math
from collections.abc import Sequence
from itertools import pairwise

from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedopl.report.figures.drawing import label_room

_UNITS = ((1e9, "bn"), (1e6, "M"), (1e4, "k"))
_SMALL = 1e-3
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_APART = 0.05  # inches between two labels, at least


def tick_texts(values: Sequence[float]) -> list[str]:
    """The texts of these ticks: thousands as k, millions as M, and a true minus sign."""
    largest = max((abs(value) for value in values), default=0.0)
    scale, unit = 1.0, ""
    for least, name in _UNITS:
        if largest >= least:
            scale, unit = (1e3 if name == "k" else least), name
            break
    if 0 < largest < _SMALL:
        power = math.floor(math.log10(largest))
        scale, unit = 10.0**power, f"·10{str(power).translate(_SUPERSCRIPT)}"
    scaled = [value / scale for value in values]
    decimals = next(d for d in range(8) if d == 7 or all(_fits(value, d) for value in scaled))
    return [_text(value, decimals, unit) for value in scaled]


def _fits(value: float, decimals: int) -> bool:
    return math.isclose(value, round(value, decimals), rel_tol=1e-6, abs_tol=1e-9)


def _text(value: float, decimals: int, unit: str) -> str:
    if abs(value) < 1e-9:
        return "0"
    return f"{value:,.{decimals}f}{unit}".replace("-", "−")


def ticks_that_fit(
    limits: tuple[float, float], width: float, most: int, room: float
) -> dict[float, str]:
    """Round numbers between the limits, at most `most`, whose labels do not overlap.

    `width` is that of the axis in inches, and `room` how far a label may reach beyond its ends.
    """
    low, high = limits
    best: dict[float, str] = {}
    for number in range(most, 0, -1):
        locator = MaxNLocator(number, min_n_ticks=min(2, number))
        places = [float(v) for v in locator.tick_values(low, high) if low <= v <= high]
        texts = dict(zip(places, tick_texts(places), strict=True))
        spans = []
        for place in places:
            middle, half = width * (place - low) / (high - low), _half_width(texts[place])
            if middle - half >= -room and middle + half <= width + room:
                spans.append((place, middle - half, middle + half))
        apart = all(a[2] + _APART <= b[1] for a, b in pairwise(spans))
        found = {place: texts[place] for place, _, _ in spans}
        if apart and len(found) >= min(2, number):
            return found
        best = best or dict(list(found.items())[:1])
    return best


def have_room(texts: Sequence[str], apart: float) -> bool:
    """Whether labels fit beside each other if their ticks lie this many inches apart."""
    pairs = pairwise(map(_half_width, texts))
    return all(first + second + _APART <= apart for first, second in pairs)


def _half_width(text: str) -> float:
    # Without the margin that labels beside an axis have.
    return (label_room([text]) - label_room([""])) / 2


def set_short_ticks(axis: Axis, most: int, *, whole: bool = False) -> None:
    """Set at most `most` ticks with short texts, if labels are stacked or fit side by side."""
    axis.set_major_locator(MaxNLocator(most, integer=whole))
    formatter = FuncFormatter(lambda value, _: tick_texts([value])[0])
    formatter.format_ticks = tick_texts  # type: ignore[method-assign]  # all in one unit
    axis.set_major_formatter(formatter)
