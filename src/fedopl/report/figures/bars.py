"""Bar charts of weights, in panels side by side."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedopl.base.arrays import FloatArray
from fedopl.report.figures.colours import BETTER, QUIET, WORSE
from fedopl.report.figures.drawing import WIDTH, Drawing, axes_at, in_lines, label_room, short
from fedopl.report.figures.ticks import have_room, tick_texts

# In inches: the height of a bar, the room for titles and the axis, between panels and at the edge.
_ROW, _HEAD, _FOOT, _GAP, _EDGE = 0.24, 0.46, 0.32, 0.2, 0.12
_MOST_COLUMNS = 3
_BOLD_LETTER = 0.085
_REACH = 1.08  # of the axis, in largest weights


def weights_chart(
    name: str, features: list[str], panels: list[tuple[str, FloatArray]], axis: str
) -> Drawing:
    """One panel for each score with a bar for each feature; at most three panels side by side."""
    features = [short(text) for text in features]
    left, body = label_room(features), _ROW * len(features) + 0.06
    columns = min(_MOST_COLUMNS, len(panels))
    # Fewer panels if a word of a title would not fit above its panel.
    longest = max((len(word) for title, _ in panels for word in title.split()), default=0)
    while columns > 1 and _panel_width(left, columns) < _BOLD_LETTER * longest:
        columns -= 1
    n_rows, width = -(-len(panels) // columns), _panel_width(left, columns)  # rounded up
    block = _HEAD + body + _FOOT
    height = block * n_rows + 0.22
    largest = max(float(np.abs(weights).max(initial=0.0)) for _, weights in panels) or 1.0

    def draw(figure: Figure) -> None:
        for position, (title, weights) in enumerate(panels):
            row, column = divmod(position, columns)
            bottom = height - (row + 1) * block + _FOOT
            axes = axes_at(figure, left + column * (width + _GAP), bottom, width, body)
            axes.set_title(in_lines(title, int(width / _BOLD_LETTER)), pad=6, weight="bold")
            _weights(axes, weights, largest)
            _set_ticks(axes, largest, width)
            axes.set_yticks(range(len(features)), features)
            if column:
                axes.set_yticklabels([])
        figure.text(1 - _EDGE / WIDTH, 0.06 / height, axis, ha="right", color=QUIET)

    return Drawing(name=name, height=height, draw=draw)


def _panel_width(left: float, columns: int) -> float:
    return (WIDTH - left - _EDGE - _GAP * (columns - 1)) / columns


def _weights(axes: Axes, weights: FloatArray, largest: float) -> None:
    colours = [BETTER if weight >= 0 else WORSE for weight in weights]
    axes.barh(range(len(weights)), weights, height=0.62, color=colours)
    axes.axvline(0, color=QUIET, linewidth=1)
    axes.set_xlim(-_REACH * largest, _REACH * largest)
    axes.set_ylim(len(weights) - 0.4, -0.6)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _set_ticks(axes: Axes, largest: float, width: float) -> None:
    end = _nice(largest)
    low, zero, high = tick_texts([-end, 0.0, end])
    apart = width * end / (2 * _REACH * largest)
    # The zero line is drawn, so its number can be left out.
    axes.set_xticks([-end, 0.0, end], [low, zero if have_room([low, zero], apart) else "", high])


def _nice(largest: float) -> float:
    """A round number well inside the axis, so that labels of neighbouring panels do not touch."""
    power = 10.0 ** math.floor(math.log10(largest))
    return max(step * power for step in (0.1, 0.2, 0.5, 1, 2, 5) if step * power <= 0.8 * largest)
