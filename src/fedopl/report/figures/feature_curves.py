"""Curves of features: one row for each feature and one column for each action."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedopl.base.arrays import FloatArray
from fedopl.report.figures.colours import BETTER, INK, LINE, QUIET, WORSE
from fedopl.report.figures.drawing import WIDTH, Drawing, axes_at, in_lines, label_room
from fedopl.report.figures.ticks import set_short_ticks, ticks_that_fit

# In inches: a curve's height, room below it for numbers, for titles, between columns, at the edge.
_BODY, _FOOT, _HEAD, _GAP, _EDGE, _SCALE = 0.64, 0.3, 0.42, 0.16, 0.12, 0.4
_MOST_COLUMNS = 3
_MOST_LETTERS = 13
_BOLD_LETTER = 0.085


@dataclass(frozen=True, eq=False, kw_only=True)
class CurveRow:
    """One feature: its values, what it adds to each score there, and names of its values."""

    label: str
    at: FloatArray  # (n_points,)
    adds: FloatArray  # (n_scores, n_points)
    named: tuple[str, ...] = ()  # the points, where it has these values and nothing between


def curves_chart(name: str, rows: list[CurveRow], titles: list[str], axis: str) -> Drawing:
    """Blocks of columns below each other; every panel has the same vertical scale."""
    labels = [in_lines(row.label, _MOST_LETTERS) for row in rows]
    left = label_room(labels) + _SCALE
    columns = min(_MOST_COLUMNS, len(titles))
    width = (WIDTH - left - _EDGE - _GAP * (columns - 1)) / columns
    block = _HEAD + (_BODY + _FOOT) * len(rows)
    height = block * -(-len(titles) // columns) + 0.24
    largest = max(float(np.abs(row.adds).max()) for row in rows) or 1.0

    def draw(figure: Figure) -> None:
        for score, title in enumerate(titles):
            down, across = divmod(score, columns)
            start = left + across * (width + _GAP)
            for place, row in enumerate(rows):
                bottom = height - down * block - _HEAD - (_BODY + _FOOT) * place - _BODY
                axes = axes_at(figure, start, bottom, width, _BODY)
                _panel(axes, row, row.adds[score], largest)
                _ticks(axes, row, width)
                if place == 0:
                    axes.set_title(in_lines(title, int(width / _BOLD_LETTER)), weight="bold", pad=5)
                if across:
                    axes.set_yticklabels([])
                else:
                    middle = (bottom + _BODY / 2) / height
                    figure.text(0.06 / WIDTH, middle, labels[place], va="center", color=INK)
        figure.text(1 - _EDGE / WIDTH, 0.06 / height, axis, ha="right", color=QUIET)

    return Drawing(name=name, height=height, draw=draw)


def _panel(axes: Axes, row: CurveRow, adds: FloatArray, largest: float) -> None:
    if row.named:
        axes.bar(row.at, adds, width=0.5, color=[BETTER if n >= 0 else WORSE for n in adds])
        axes.set_xlim(-0.7, len(adds) - 0.3)
    else:
        axes.fill_between(row.at, 0, np.maximum(adds, 0), color=BETTER, linewidth=0)
        axes.fill_between(row.at, 0, np.minimum(adds, 0), color=WORSE, linewidth=0)
        axes.plot(row.at, adds, color=INK, linewidth=1)
        axes.set_xlim(row.at[0], row.at[-1])
    axes.axhline(0, color=QUIET, linewidth=0.8)
    axes.set_ylim(-1.08 * largest, 1.08 * largest)
    axes.spines["left"].set_color(LINE)


def _ticks(axes: Axes, row: CurveRow, width: float) -> None:
    if row.named:
        axes.set_xticks(row.at, row.named)
    else:
        found = ticks_that_fit((float(row.at[0]), float(row.at[-1])), width, 4, 0.08)
        axes.set_xticks(list(found), list(found.values()))
    set_short_ticks(axes.yaxis, 2)
    axes.tick_params(axis="y", labelcolor=QUIET, labelsize=8)
