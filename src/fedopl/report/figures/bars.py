"""Bars: weights in panels side by side, and shares stacked to a whole."""

import math
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedopl.base.arrays import FloatArray
from fedopl.report.figures.drawing import (
    ACTIONS,
    BETTER,
    INK,
    LINE,
    PAGE,
    QUIET,
    WIDTH,
    WORSE,
    axes_at,
    drawn,
    in_lines,
    label_room,
    short,
)

# In inches: the height of a bar, the room for titles and the axis, between panels and at the edge.
_ROW, _HEAD, _FOOT, _GAP, _EDGE = 0.24, 0.46, 0.32, 0.2, 0.12
_MOST_COLUMNS = 3
_LEAST_LABELLED = 0.09  # a narrower segment has no room for its number


def weights_chart(
    name: str, features: list[str], panels: list[tuple[str, FloatArray]], axis: str
) -> str:
    """One panel for each score, a bar for each feature; at most three panels side by side."""
    columns = min(_MOST_COLUMNS, len(panels))
    n_rows = -(-len(panels) // columns)
    features = [short(text) for text in features]
    left, body = label_room(features), _ROW * len(features) + 0.06
    width = (WIDTH - left - _EDGE - _GAP * (columns - 1)) / columns
    block = _HEAD + body + _FOOT
    height = block * n_rows + 0.22
    largest = max(float(np.abs(weights).max(initial=0.0)) for _, weights in panels) or 1.0

    def draw(figure: Figure) -> None:
        for position, (title, weights) in enumerate(panels):
            row, column = divmod(position, columns)
            bottom = height - (row + 1) * block + _FOOT
            axes = axes_at(figure, left + column * (width + _GAP), bottom, width, body)
            axes.set_title(in_lines(title, int(width / 0.085)), pad=6, weight="bold")
            _weights(axes, weights, largest)
            axes.set_yticks(range(len(features)), features)
            if column:
                axes.set_yticklabels([])
        figure.text(1 - _EDGE / WIDTH, 0.06 / height, axis, ha="right", color=QUIET)

    return drawn(name, height, draw)


def _weights(axes: Axes, weights: FloatArray, largest: float) -> None:
    colours = [BETTER if weight >= 0 else WORSE for weight in weights]
    axes.barh(range(len(weights)), weights, height=0.62, color=colours)
    axes.axvline(0, color=QUIET, linewidth=1)
    axes.set_xlim(-1.08 * largest, 1.08 * largest)
    axes.set_ylim(len(weights) - 0.4, -0.6)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xticks([-_nice(largest), 0, _nice(largest)])


def _nice(largest: float) -> float:
    """A round number well inside, so that labels of neighbouring panels do not touch."""
    power = 10.0 ** math.floor(math.log10(largest))
    return max(step * power for step in (0.1, 0.2, 0.5, 1, 2, 5) if step * power <= 0.8 * largest)


@dataclass(frozen=True, kw_only=True)
class Bar:
    """Shares of one group, in the order of the colours; a heading stands above its first bar."""

    label: str
    shares: list[float]
    note: str
    heading: str = ""


def stacked(name: str, bars: list[Bar]) -> str:
    """Stacked bars that add up to a whole, with numbers where there is room for them."""
    left = label_room([short(bar.label) for bar in bars])
    right = 0.1 + 0.068 * max(len(bar.note) for bar in bars)
    places = _places(bars)
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

    return drawn(name, height, draw)


def _places(bars: list[Bar]) -> list[float]:
    """How far down each bar is, in inches; more room where a heading begins."""
    places, down = [], -0.08
    for bar in bars:
        down += 0.6 if bar.heading else 0.27
        places.append(down)
    return places


def _stack(axes: Axes, bar: Bar, place: float) -> None:
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
