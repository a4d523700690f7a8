"""Shares that add up to one: as a stacked bar, or as shades along a strip."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fedopl.base.arrays import FloatArray
from fedopl.report.figures.colours import ACCENT, ACTIONS, INK, LINE, PAGE, QUIET
from fedopl.report.figures.drawing import WIDTH, Drawing, axes_at, label_room, short

# In inches: the height of a strip, the room above a first one, for titles, the axis and notes.
_ROW, _ABOVE, _HEAD, _FOOT, _RIGHT = 0.26, 0.3, 0.3, 0.27, 0.68
_DARKEST = 0.5  # letters must stay readable on it
_MOST_LETTERS = 20
_LEAST_LABELLED = 0.09  # a narrower segment has no room for its number


@dataclass(frozen=True, eq=False, kw_only=True)
class Shares:
    """One row of the figure: a note stands at its end, a heading above the first row of a kind."""

    label: str
    shares: Sequence[float] | FloatArray
    note: str = ""
    heading: str = ""


def stacked(name: str, bars: list[Shares]) -> Drawing:
    """Stacked bars that add up to one, with numbers where there is room for them."""
    left = label_room([short(bar.label) for bar in bars])
    right = 0.05 + label_room([bar.note for bar in bars])
    # How far down each bar is, in inches, with more room above a heading.
    steps = (0.6 if bar.heading else 0.27 for bar in bars)
    _, *places = accumulate(steps, initial=-0.08)
    height = places[-1] + 0.3
    width = WIDTH - left - right

    def draw(figure: Figure) -> None:
        axes = axes_at(figure, left, 0, width, height)
        axes.set_axis_off()
        axes.set_xlim(0, 1)
        axes.set_ylim(height, 0)
        for bar, place in zip(bars, places, strict=True):
            if bar.heading:
                heading = short(bar.heading, 60)
                axes.text(-left / width + 0.01, place - 0.29, heading, weight="bold", va="center")
            _stack(axes, bar, place)
            axes.text(-0.08 / width, place, short(bar.label), ha="right", va="center", color=INK)
            axes.text(1 + 0.07 / width, place, bar.note, va="center", color=QUIET)

    return Drawing(name=name, height=height, draw=draw)


def _stack(axes: Axes, bar: Shares, place: float) -> None:
    start = 0.0
    for share, colour in zip(bar.shares, ACTIONS, strict=False):
        if share > 0:
            axes.barh(place, share, left=start, height=0.21, color=colour, edgecolor=PAGE, lw=0.8)
        if share >= _LEAST_LABELLED:
            text = f"{100 * share:.0f} %"
            axes.text(start + share / 2, place, text, ha="center", va="center", size=8.5)
        start += share
    if start == 0:
        axes.barh(place, 1, height=0.21, color="none", edgecolor=LINE, lw=0.8)


def strips(name: str, items: list[Shares], columns: list[str], axis: str, notes: str) -> Drawing:
    """Strips below each other; `axis` is the title of the columns, `notes` that of the notes."""
    left = 0.08 + label_room([short(item.label, _MOST_LETTERS) for item in items])
    cell = (WIDTH - left - _RIGHT) / len(columns)
    body = _ROW * len(items) + _ABOVE * sum(bool(item.heading) for item in items)

    def draw(figure: Figure) -> None:
        axes = axes_at(figure, left, _FOOT, cell * len(columns), body)
        axes.set_axis_off()
        axes.set_xlim(0, len(columns))
        axes.set_ylim(body, 0)
        down = 0.0
        for item in items:
            if item.heading:
                down += _ABOVE
                heading = short(item.heading, 40)
                axes.text(-left / cell + 0.05, down - 0.1, heading, va="center", weight="bold")
            _strip(axes, item, down)
            down += _ROW
        for column, text in enumerate(columns):
            axes.text(column + 0.5, -0.06, text, ha="center", size=8, color=QUIET)
        axes.text(len(columns) + 0.25, -0.06, notes, size=8, color=QUIET)
        axes.text(0, body + 0.08, axis, va="top", color=QUIET)

    return Drawing(name=name, height=_HEAD + body + _FOOT, draw=draw)


def _strip(axes: Axes, item: Shares, down: float) -> None:
    middle, columns = down + _ROW / 2, len(item.shares)
    axes.text(-0.2, middle, short(item.label, _MOST_LETTERS), ha="right", va="center")
    axes.text(columns + 0.25, middle, item.note, va="center")
    for column, share in enumerate(item.shares):
        place = (column + 0.04, down + 0.02)
        if share:
            shade = Rectangle(place, 0.92, _ROW - 0.04, color=ACCENT, alpha=_DARKEST * float(share))
            axes.add_patch(shade)
        axes.add_patch(Rectangle(place, 0.92, _ROW - 0.04, fill=False, lw=0.6, edgecolor=LINE))
        if share >= 0.005:
            text = f"{100 * share:.0f}"
            axes.text(column + 0.5, middle, text, ha="center", va="center", size=8.5)
