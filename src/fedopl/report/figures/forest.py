"""Forest plots: a point and its interval for each row, in one panel or several side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedopl.report.figures.colours import BETTER, INK, LINE, PAGE, QUIET, UNCLEAR, WORSE
from fedopl.report.figures.drawing import (
    LONGEST_LABEL,
    WIDTH,
    Drawing,
    axes_at,
    in_lines,
    label_room,
)
from fedopl.report.figures.ticks import ticks_that_fit
from fedopl.report.parts import Key
from fedopl.report.words.numbers import Span
from fedopl.report.words.policy_labels import verdict

# In inches: the height of a row, the room for titles and the axis, between panels and at the edge.
_ROW, _HEAD, _FOOT, _GAP, _EDGE = 0.25, 0.42, 0.5, 0.16, 0.12
_TWO_LINES = 0.38  # of a row whose label has them
_MOST_BESIDE = 18  # letters of a label beside several panels
_FURTHEST = 3.0  # an interval is cut off this many ordinary reaches beyond the outermost point

# Shapes differ as well, for readers who cannot distinguish the colours.
_MARKS = {"better": (BETTER, "o"), "worse": (WORSE, "s")}
_MARKS |= dict.fromkeys(("unclear", "same"), (UNCLEAR, "o"))
GAIN_KEYS = (
    Key(colour="better", text="better: the whole interval is to the right", mark="●"),
    Key(colour="worse", text="worse: the whole interval is to the left", mark="■"),
    Key(colour="unclear", text="no clear difference", mark="○"),
)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One column of a forest plot: a span for each row, or None if a row has no span."""

    title: str
    spans: Sequence[Span | None]


def forest(
    name: str, labels: list[str], panels: list[Panel], axis: str, *, zero: bool = False
) -> Drawing:
    """A forest plot; with `zero`, marks show on which side of it intervals lie: right is better."""
    most = LONGEST_LABEL if len(panels) == 1 else _MOST_BESIDE
    labels = [in_lines(text, most) for text in labels]
    row = _ROW if not any("\n" in text for text in labels) else _TWO_LINES
    left, head = label_room(labels), _HEAD if any(p.title for p in panels) else 0.06
    body = row * len(labels) + 0.08
    width = (WIDTH - left - _EDGE - _GAP * (len(panels) - 1)) / len(panels)
    low, high = _limits(panels, zero=zero)

    def draw(figure: Figure) -> None:
        for position, panel in enumerate(panels):
            axes = axes_at(figure, left + position * (width + _GAP), _FOOT, width, body)
            _style(axes, len(labels), (low, high))
            n_ticks, room = (5, _EDGE) if len(panels) == 1 else (2, _GAP / 2)
            axes.set_xticks(**_ticks((low, high), width, n_ticks, room))
            axes.set_title(in_lines(panel.title, int(width / 0.08)), color=QUIET, pad=7)
            axes.set_yticks(range(len(labels)), labels)
            if position:
                axes.set_yticklabels([])
            if zero:
                axes.axvline(0, color=QUIET, linewidth=1)
            for place, span in enumerate(panel.spans):
                if span:
                    _point(axes, place, span, _MARKS[verdict(span)] if zero else (INK, "o"))
        figure.text(1 - _EDGE / WIDTH, 0.09 / (head + body + _FOOT), axis, ha="right", color=QUIET)

    return Drawing(name=name, height=head + body + _FOOT, draw=draw)


def _ticks(limits: tuple[float, float], width: float, most: int, room: float) -> dict[str, Any]:
    found = ticks_that_fit(limits, width, most, room)
    return {"ticks": list(found), "labels": list(found.values())}


def _style(axes: Axes, n_rows: int, limits: tuple[float, float]) -> None:
    axes.set_xlim(*limits)
    axes.set_ylim(n_rows - 0.5, -0.5)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color=LINE, linewidth=0.6)
    axes.set_axisbelow(True)


def _point(axes: Axes, row: int, span: Span, mark: tuple[str, str]) -> None:
    colour, shape = mark
    if span.is_known:
        axes.plot([span.low, span.high], [row, row], color=colour, linewidth=2)
    inside = PAGE if colour == UNCLEAR else colour
    axes.plot(span.value, row, shape, color=inside, markeredgecolor=colour, markersize=6.5, mew=1.6)


def is_cut(spans: list[Span | None]) -> bool:
    """Whether an interval extends beyond the edge."""
    known = [span for span in spans if span and span.is_known]
    low, high = _reach(known)
    return any(span.low < low or span.high > high for span in known)


def _limits(panels: list[Panel], *, zero: bool) -> tuple[float, float]:
    spans = [span for panel in panels for span in panel.spans if span]
    low, high = _reach([span for span in spans if span.is_known])
    points = [span.value for span in spans] + ([0.0] if zero else [])
    low, high = min([low, *points]), max([high, *points])
    margin = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
    return low - margin, high + margin


def _reach(known: list[Span]) -> tuple[float, float]:
    """The ends of the axis, limited to a few typical widths: no tiny client may squash all."""
    if not known:
        return np.inf, -np.inf
    furthest = _FURTHEST * float(np.median([(span.high - span.low) / 2 for span in known]))
    low = max(min(s.low for s in known), min(s.value for s in known) - furthest)
    return low, min(max(s.high for s in known), max(s.value for s in known) + furthest)
