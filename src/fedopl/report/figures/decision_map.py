"""A map of decisions over the values of two features, in the actions' colours."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.report.figures.colours import ACTIONS, QUIET
from fedopl.report.figures.drawing import WIDTH, Drawing, axes_at, label_room, short
from fedopl.report.figures.ticks import set_short_ticks, ticks_that_fit

# In inches: the map's height, and the room around it.
_BODY, _FOOT, _HEAD, _SCALE, _EDGE = 2.1, 0.5, 0.3, 0.5, 0.15


@dataclass(frozen=True, eq=False, kw_only=True)
class MapSide:
    """One of the two features: its values, and their names if it has levels only."""

    label: str
    at: FloatArray  # (n_points,)
    named: tuple[str, ...] = ()

    @property
    def edges(self) -> FloatArray:  # (n_points + 1,)
        """Edges halfway between values; outer edges lie as far out as the next ones lie within."""
        between = (self.at[1:] + self.at[:-1]) / 2
        first, last = 2 * self.at[0] - between[0], 2 * self.at[-1] - between[-1]
        return np.array([first, *between, last])


def decision_map(name: str, across: MapSide, up: MapSide, colours: IntArray) -> Drawing:
    """The map; `colours` (n_up, n_across) has the position of a colour for each pair of values."""
    left = max(_SCALE, label_room(list(up.named)))
    height = _HEAD + _BODY + _FOOT
    width = WIDTH - left - _EDGE

    def draw(figure: Figure) -> None:
        axes = axes_at(figure, left, _FOOT, width, _BODY)
        for row, own in enumerate(colours):
            _row(axes, across.edges, up.edges[row : row + 2], own)
        axes.set_xlim(across.edges[0], across.edges[-1])
        axes.set_ylim(up.edges[0], up.edges[-1])
        if across.named:
            axes.set_xticks(across.at, across.named)
        else:
            ends = float(across.edges[0]), float(across.edges[-1])
            found = ticks_that_fit(ends, width, 6, 0.08)
            axes.set_xticks(list(found), list(found.values()))
        if up.named:
            axes.set_yticks(up.at, up.named)
        else:
            set_short_ticks(axes.yaxis, 5)
        axes.tick_params(axis="y", labelcolor=QUIET)
        figure.text(0.06 / WIDTH, 1 - 0.2 / height, f"{short(up.label)} ↑", color=QUIET)
        at = 1 - _EDGE / WIDTH
        figure.text(at, 0.09 / height, f"{short(across.label)} →", ha="right", color=QUIET)

    return Drawing(name=name, height=height, draw=draw)


def _row(axes: Axes, edges: FloatArray, ends: FloatArray, colours: IntArray) -> None:
    """Draw neighbours of one colour as one piece, which keeps the page small."""
    starts = np.flatnonzero(np.diff(colours, prepend=-1))
    stops = [*starts[1:], len(colours)]
    for first, stop in zip(starts, stops, strict=True):
        corner = float(edges[first]), float(ends[0])
        size = float(edges[stop] - edges[first]), float(ends[1] - ends[0])
        colour = ACTIONS[colours[first]]
        # A thin edge of the same colour covers the seam between rows.
        axes.add_patch(Rectangle(corner, *size, facecolor=colour, edgecolor=colour, linewidth=0.8))
