"""Points and their intervals: one for each row in panels side by side, or some for each client."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedopl.report.figures.colours import (
    BETTER,
    INK,
    LINE,
    PAGE,
    QUIET,
    SOURCE_COLOURS,
    UNCLEAR,
    WORSE,
)
from fedopl.report.figures.drawing import (
    LONGEST_LABEL,
    WIDTH,
    Drawing,
    axes_at,
    in_lines,
    label_room,
    set_short_ticks,
    short,
    ticks_that_fit,
)
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
            axes.set_xlim(low, high)
            axes.set_ylim(len(labels) - 0.5, -0.5)
            axes.spines["left"].set_visible(False)
            axes.tick_params(axis="y", length=0)
            axes.grid(axis="y", color=LINE, linewidth=0.6)
            axes.set_axisbelow(True)
            n_ticks, room = (5, _EDGE) if len(panels) == 1 else (2, _GAP / 2)
            ticks = ticks_that_fit((low, high), width, n_ticks, room)
            axes.set_xticks(list(ticks), list(ticks.values()))
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


# In inches: the height of a dot's row, the room between clients and for the title.
_DOT, _BETWEEN, _TITLE = 0.17, 0.16, 0.26
_MOST_LETTERS = 20
_LEAST = 0.1  # differences below this do not fill the figure
_AXIS = "E[√KL] from the mixture; 0 is no difference"
# Shapes differ as well, for readers who cannot distinguish the colours.
_SOURCE_MARKS = tuple(zip(SOURCE_COLOURS, "osD", strict=True))
SOURCE_KEYS = (
    Key(colour="source-1", text="covariates: whom a client sees", mark="●"),
    Key(colour="source-2", text="propensities: how it decided", mark="■"),
    Key(colour="source-3", text="outcomes: what comes of it", mark="◆"),
)


@dataclass(frozen=True, kw_only=True)
class Dots:
    """One client: a span for each source, None if not reported, and a note at the end."""

    label: str
    spans: list[Span | None]
    note: str


def shift_dots(name: str, items: list[Dots], places: list[int]) -> Drawing:
    """Every client's sources below each other; `places` selects the marks."""
    labels = [short(item.label, _MOST_LETTERS) for item in items]
    notes = [item.note for item in items]
    left, right = label_room(labels), label_room(notes) if any(notes) else 0.15
    head = _TITLE if any(notes) else 0.06
    width, group = WIDTH - left - right, _DOT * len(places) + _BETWEEN
    body = group * len(items)
    furthest = max([span.high for item in items for span in item.spans if span] + [_LEAST])

    def draw(figure: Figure) -> None:
        axes = axes_at(figure, left, _FOOT, width, body)
        axes.set_xlim(-0.02 * furthest, 1.04 * furthest)
        axes.set_ylim(body, 0)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.axvline(0, color=QUIET, linewidth=1)
        set_short_ticks(axes.xaxis, 5)
        beside = axes.get_yaxis_transform()  # across in widths of the axes, down in inches
        for place, item in enumerate(items):
            top = group * place
            if place:
                axes.plot([0, 1], [top, top], color=LINE, lw=0.6, transform=beside)
            at: dict[str, Any] = {"va": "center", "color": INK, "transform": beside}
            axes.text(-0.08 / width, top + group / 2, labels[place], ha="right", **at)
            axes.text(1 + 0.08 / width, top + group / 2, item.note, **at)
            for row, (span, mark) in enumerate(zip(item.spans, places, strict=True)):
                _dot(axes, top + _BETWEEN / 2 + _DOT * (row + 0.5), span, _SOURCE_MARKS[mark])
        if any(notes):
            axes.text(1 + 0.08 / width, -0.08, "largest", color=QUIET, transform=beside)
        figure.text(1 - 0.12 / WIDTH, 0.09 / (head + body + _FOOT), _AXIS, ha="right", color=QUIET)

    return Drawing(name=name, height=head + body + _FOOT, draw=draw)


def _dot(axes: Axes, down: float, span: Span | None, mark: tuple[str, str]) -> None:
    colour, shape = mark
    if span is None:
        axes.plot(0, down, "x", color=colour, markersize=4.5, clip_on=False)
        beside = axes.get_yaxis_transform()
        axes.text(0.05, down, "not reported", va="center", size=8.5, color=QUIET, transform=beside)
        return
    axes.plot([span.low, span.high], [down, down], color=colour, linewidth=2)
    axes.plot(span.value, down, shape, color=colour, markersize=5.5, clip_on=False)
