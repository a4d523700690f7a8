"""Figures as inline SVG in the page's colours and fonts, with short ticks that fit."""

import io
import math
import re
import textwrap
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import is_color_like, to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedopl.report.figures.colours import CSS_OF, INK, LINE, PAGE, PAPER, QUIET
from fedopl.report.words.numbers import printable

# Narrow, so that letters can still be read where a phone shrinks the figure to its width.
WIDTH = 5.2
_LETTER = 0.073  # inches, the width of an ordinary letter
LONGEST_LABEL = 28  # letters
_FONT_SIZE = 9.5
_DPI = 150  # of figures in notebooks

_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # letters stay letters, in the page's font and found by a search
    "svg.hashsalt": "fedopl",  # the same ids in every run
    "text.parse_math": False,  # a dollar sign in a client's name is no formula
    "axes.unicode_minus": True,
    "font.size": _FONT_SIZE,
    "text.color": INK,
    "axes.labelcolor": QUIET,
    "axes.edgecolor": LINE,
    "axes.titlesize": _FONT_SIZE,
    "axes.labelsize": _FONT_SIZE,
    "xtick.color": LINE,
    "xtick.labelcolor": QUIET,
    "xtick.labelsize": _FONT_SIZE - 0.5,
    "ytick.color": LINE,
    "ytick.labelcolor": INK,
    "ytick.labelsize": _FONT_SIZE,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))

_COLOUR = re.compile(r"#[0-9a-f]{6}")
_FONT = re.compile(r"\s*font-family:[^;]*;?")
_REFERENCE = re.compile(r"#([\w.-]+)")


@dataclass(frozen=True, eq=False, kw_only=True)
class Drawing:
    """A figure of this size in inches, filled by `draw`: as SVG for the page, or for matplotlib."""

    name: str
    height: float
    draw: Callable[[Figure], None]
    width: float = WIDTH

    @cached_property
    def svg(self) -> str:
        """The drawing as SVG, in the colours and fonts of the page around it."""
        with _own_settings():
            figure = Figure(figsize=(self.width, self.height))
            self.draw(figure)
            content = io.BytesIO()
            with warnings.catch_warnings():
                # Letters that matplotlib's own font lacks are drawn by the reader's browser.
                warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
                figure.savefig(content, format="svg", transparent=True, metadata=_NO_METADATA)
        return _inline(content.getvalue(), self.name)

    def figure(self) -> Figure:
        """The drawing as a matplotlib figure, in the colours of a light page."""
        with _own_settings():
            figure = ShownFigure(figsize=(self.width, self.height), dpi=_DPI)
            self.draw(figure)
        figure.set_facecolor(PAPER[PAGE])
        for axes in figure.axes:
            axes.set_facecolor("none")
        for artist in figure.findobj(include_self=False):
            _recolour(artist)
        return figure


class ShownFigure(Figure):
    """A figure that any notebook shows, even one that is not set up for matplotlib."""

    def savefig(self, fname: Any, **how: Any) -> None:
        """Save the figure including what lies at its edges, such as its legend."""
        super().savefig(fname, **{"bbox_inches": "tight", **how})

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.savefig(content, format="png")
        return content.getvalue()


def _recolour(artist: Artist) -> None:
    """Replace placeholder colours by the colours of a light page."""
    for part in ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor"):
        if hasattr(artist, f"get_{part}") and hasattr(artist, f"set_{part}"):
            found = getattr(artist, f"get_{part}")()
            if is_color_like(found) and to_hex(found) in PAPER and to_rgba(found)[3]:
                getattr(artist, f"set_{part}")(PAPER[to_hex(found)])


@contextmanager
def _own_settings() -> Iterator[None]:
    """Use fixed settings, whatever the user has set: the same record gives the same bytes."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


def axes_at(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Axes at a position in inches from the lower left corner."""
    across, up = figure.get_size_inches()
    return figure.add_axes((left / across, bottom / up, width / across, height / up))


def label_room(labels: list[str]) -> float:
    """The width in inches that these labels need."""
    lines = [line for label in labels for line in label.split("\n")]
    return 0.15 + _LETTER * max(map(_width, lines), default=0)


def short(text: str, most: int = LONGEST_LABEL) -> str:
    """The text on one line, cut off if it is too long to be drawn."""
    clean = " ".join(printable(text).split())
    if _width(clean) <= most:
        return clean
    kept = ""
    for letter in clean:
        if _width(kept + letter) >= most:
            break
        kept += letter
    return f"{kept.rstrip()}…"


def in_lines(text: str, most: int) -> str:
    """The text on one line or two, of at most this many letters each."""
    # A word that is too long is cut off, not broken in two.
    lines = textwrap.wrap(short(text, 2 * most), most, break_long_words=False) or [""]
    kept = [lines[0], " ".join(lines[1:])] if len(lines) > 1 else lines
    return "\n".join(short(line, most) for line in kept)


def _width(text: str) -> float:
    return sum(map(_letter_width, text))


def _letter_width(letter: str) -> float:
    """The width of a letter, relative to ordinary letters."""
    if unicodedata.east_asian_width(letter) in "WF" or letter in "MW@%":
        return 1.8
    return 1.25 if letter.isupper() else 1.12 if letter.isdigit() or letter == "−" else 1.0


def _inline(content: bytes, name: str) -> str:
    root = ElementTree.fromstring(content)  # noqa: S314  what matplotlib wrote a moment ago
    # In styles, what looks like a reference to an id is a colour.
    texts = [value for e in root.iter() for key, value in e.attrib.items() if key != "style"]
    used = {found for text in texts for found in _REFERENCE.findall(text)}
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = {
            key.rpartition("}")[2]: _rewritten(value, name)
            for key, value in element.attrib.items()
            if key != "id" or value in used
        }
        if "id" in element.attrib:
            # Ids have to differ between all figures of one page.
            element.set("id", f"{name}-{element.get('id')}")
    for element in root.iter():
        for child in [c for c in element if c.tag in ("metadata", "style")]:
            element.remove(child)
    box = root.attrib["viewBox"]
    root.attrib = {"viewBox": box, "aria-hidden": "true", "focusable": "false"}
    return re.sub(r"\s*\n\s*", " ", ElementTree.tostring(root, encoding="unicode"))


def _rewritten(value: str, name: str) -> str:
    if value.startswith(("#", "url(#")):
        return _REFERENCE.sub(rf"#{name}-\1", value)
    return _FONT.sub("", _COLOUR.sub(lambda found: CSS_OF[found.group()], value))


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
    texts = [f"{value:,.{decimals}f}{unit}".replace("-", "−") for value in scaled]
    return ["0" if abs(value) < 1e-9 else text for value, text in zip(scaled, texts, strict=True)]


def _fits(value: float, decimals: int) -> bool:
    return math.isclose(value, round(value, decimals), rel_tol=1e-6, abs_tol=1e-9)


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
