"""What favours each action: bars of weights, curves of features, and a map of two features."""

import math
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.report.figures.colours import ACTIONS, BETTER, INK, LINE, QUIET, WORSE
from fedopl.report.figures.drawing import (
    WIDTH,
    Drawing,
    axes_at,
    have_room,
    in_lines,
    label_room,
    set_short_ticks,
    short,
    tick_texts,
    ticks_that_fit,
)

_MOST_COLUMNS = 3  # of panels
_BOLD_LETTER = 0.085  # its width in inches
_EDGE = 0.12  # in inches
_REACH = 1.08  # of an axis, in largest weights

# Of bars, in inches: the height of one, the room for titles and the axis, and between panels.
_ROW, _HEAD, _FOOT, _GAP = 0.24, 0.46, 0.32, 0.2


def weights_chart(
    name: str, features: list[str], panels: list[tuple[str, FloatArray]], axis: str
) -> Drawing:
    """One panel for each score with a bar for each feature; at most three panels side by side."""
    features = [short(text) for text in features]
    left, body = label_room(features), _ROW * len(features) + 0.06
    columns = min(_MOST_COLUMNS, len(panels))
    # Fewer panels if a word of a title would not fit above its panel.
    longest = max((len(word) for title, _ in panels for word in title.split()), default=0)
    while columns > 1 and _panel_width(left, columns, _GAP) < _BOLD_LETTER * longest:
        columns -= 1
    n_rows, width = -(-len(panels) // columns), _panel_width(left, columns, _GAP)  # rounded up
    block = _HEAD + body + _FOOT
    height = block * n_rows + 0.22
    largest = max(float(np.abs(weights).max(initial=0.0)) for _, weights in panels) or 1.0

    def draw(figure: Figure) -> None:
        for position, (title, weights) in enumerate(panels):
            row, column = divmod(position, columns)
            bottom = height - (row + 1) * block + _FOOT
            axes = axes_at(figure, left + column * (width + _GAP), bottom, width, body)
            axes.set_title(in_lines(title, int(width / _BOLD_LETTER)), pad=6, weight="bold")
            _weights(axes, weights, largest, width)
            axes.set_yticks(range(len(features)), features)
            if column:
                axes.set_yticklabels([])
        figure.text(1 - _EDGE / WIDTH, 0.06 / height, axis, ha="right", color=QUIET)

    return Drawing(name=name, height=height, draw=draw)


def _panel_width(left: float, columns: int, gap: float) -> float:
    return (WIDTH - left - _EDGE - gap * (columns - 1)) / columns


def _weights(axes: Axes, weights: FloatArray, largest: float, width: float) -> None:
    colours = [BETTER if weight >= 0 else WORSE for weight in weights]
    axes.barh(range(len(weights)), weights, height=0.62, color=colours)
    axes.axvline(0, color=QUIET, linewidth=1)
    axes.set_xlim(-_REACH * largest, _REACH * largest)
    axes.set_ylim(len(weights) - 0.4, -0.6)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    # A round number well inside, so that labels of neighbouring panels do not touch.
    power = 10.0 ** math.floor(math.log10(largest))
    end = max(step * power for step in (0.1, 0.2, 0.5, 1, 2, 5) if step * power <= 0.8 * largest)
    low, zero, high = tick_texts([-end, 0.0, end])
    apart = width * end / (2 * _REACH * largest)
    # The zero line is drawn, so its number can be left out.
    axes.set_xticks([-end, 0.0, end], [low, zero if have_room([low, zero], apart) else "", high])


# Of curves, in inches: the height of one, room for numbers below, for titles, between columns.
_CURVE, _NUMBERS, _TITLES, _BETWEEN, _SCALE = 0.64, 0.3, 0.42, 0.16, 0.4
_MOST_LETTERS = 13


@dataclass(frozen=True, eq=False, kw_only=True)
class FeatureValues:
    """A feature's values, and their names if it has these values and nothing between."""

    label: str
    at: FloatArray  # (n_points,)
    named: tuple[str, ...] = ()

    @property
    def edges(self) -> FloatArray:  # (n_points + 1,)
        """Edges halfway between values; outer edges lie as far out as the next ones lie within."""
        between = (self.at[1:] + self.at[:-1]) / 2
        first, last = 2 * self.at[0] - between[0], 2 * self.at[-1] - between[-1]
        return np.array([first, *between, last])

    def mark(self, axes: Axes, ends: tuple[float, float], width: float, most: int) -> None:
        """Set ticks across: the names of values, or numbers that fit."""
        if self.named:
            axes.set_xticks(self.at, self.named)
        else:
            found = ticks_that_fit(ends, width, most, 0.08)
            axes.set_xticks(list(found), list(found.values()))


def curves_chart(
    name: str, rows: list[tuple[FeatureValues, FloatArray]], titles: list[str], axis: str
) -> Drawing:
    """A row for each feature, with what it adds (n_scores, n_points), and a column for each score.

    Blocks of columns lie below each other; every panel has the same vertical scale.
    """
    labels = [in_lines(row.label, _MOST_LETTERS) for row, _ in rows]
    left = label_room(labels) + _SCALE
    columns = min(_MOST_COLUMNS, len(titles))
    width = _panel_width(left, columns, _BETWEEN)
    block = _TITLES + (_CURVE + _NUMBERS) * len(rows)
    height = block * -(-len(titles) // columns) + 0.24
    largest = max(float(np.abs(adds).max()) for _, adds in rows) or 1.0

    def draw(figure: Figure) -> None:
        for score, title in enumerate(titles):
            down, across = divmod(score, columns)
            start = left + across * (width + _BETWEEN)
            for place, (row, adds) in enumerate(rows):
                bottom = height - down * block - _TITLES - (_CURVE + _NUMBERS) * place - _CURVE
                axes = axes_at(figure, start, bottom, width, _CURVE)
                _curve(axes, row, adds[score], largest)
                row.mark(axes, (float(row.at[0]), float(row.at[-1])), width, 4)
                set_short_ticks(axes.yaxis, 2)
                axes.tick_params(axis="y", labelcolor=QUIET, labelsize=8)
                if place == 0:
                    axes.set_title(in_lines(title, int(width / _BOLD_LETTER)), weight="bold", pad=5)
                if across:
                    axes.set_yticklabels([])
                else:
                    middle = (bottom + _CURVE / 2) / height
                    figure.text(0.06 / WIDTH, middle, labels[place], va="center", color=INK)
        figure.text(1 - _EDGE / WIDTH, 0.06 / height, axis, ha="right", color=QUIET)

    return Drawing(name=name, height=height, draw=draw)


def _curve(axes: Axes, row: FeatureValues, adds: FloatArray, largest: float) -> None:
    if row.named:
        axes.bar(row.at, adds, width=0.5, color=[BETTER if n >= 0 else WORSE for n in adds])
        axes.set_xlim(-0.7, len(adds) - 0.3)
    else:
        axes.fill_between(row.at, 0, np.maximum(adds, 0), color=BETTER, linewidth=0)
        axes.fill_between(row.at, 0, np.minimum(adds, 0), color=WORSE, linewidth=0)
        axes.plot(row.at, adds, color=INK, linewidth=1)
        axes.set_xlim(row.at[0], row.at[-1])
    axes.axhline(0, color=QUIET, linewidth=0.8)
    axes.set_ylim(-_REACH * largest, _REACH * largest)
    axes.spines["left"].set_color(LINE)


# Of a map, in inches: its height, and the room around it.
_MAP, _BELOW, _ABOVE, _BESIDE, _RIGHT = 2.1, 0.5, 0.3, 0.5, 0.15


def decision_map(name: str, across: FeatureValues, up: FeatureValues, colours: IntArray) -> Drawing:
    """Decisions over the values of two features, in the actions' colours.

    `colours` (n_up, n_across) has the position of a colour for each pair of values.
    """
    left = max(_BESIDE, label_room(list(up.named)))
    height = _ABOVE + _MAP + _BELOW
    width = WIDTH - left - _RIGHT

    def draw(figure: Figure) -> None:
        axes = axes_at(figure, left, _BELOW, width, _MAP)
        for row, own in enumerate(colours):
            _map_row(axes, across.edges, up.edges[row : row + 2], own)
        axes.set_xlim(across.edges[0], across.edges[-1])
        axes.set_ylim(up.edges[0], up.edges[-1])
        across.mark(axes, (float(across.edges[0]), float(across.edges[-1])), width, 6)
        if up.named:
            axes.set_yticks(up.at, up.named)
        else:
            set_short_ticks(axes.yaxis, 5)
        axes.tick_params(axis="y", labelcolor=QUIET)
        figure.text(0.06 / WIDTH, 1 - 0.2 / height, f"{short(up.label)} ↑", color=QUIET)
        at = 1 - _RIGHT / WIDTH
        figure.text(at, 0.09 / height, f"{short(across.label)} →", ha="right", color=QUIET)

    return Drawing(name=name, height=height, draw=draw)


def _map_row(axes: Axes, edges: FloatArray, ends: FloatArray, colours: IntArray) -> None:
    """Draw neighbours of one colour as one piece, which keeps the page small."""
    starts = np.flatnonzero(np.diff(colours, prepend=-1))
    stops = [*starts[1:], len(colours)]
    for first, stop in zip(starts, stops, strict=True):
        corner = float(edges[first]), float(ends[0])
        size = float(edges[stop] - edges[first]), float(ends[1] - ends[0])
        colour = ACTIONS[colours[first]]
        # A thin edge of the same colour covers the seam between rows.
        axes.add_patch(Rectangle(corner, *size, facecolor=colour, edgecolor=colour, linewidth=0.8))
