"""Points with their errors, by source of shift: one group of rows for each client."""

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedopl.report.figures.colours import INK, LINE, QUIET, SOURCE_COLOURS
from fedopl.report.figures.drawing import WIDTH, Drawing, axes_at, label_room, short
from fedopl.report.figures.ticks import set_short_ticks
from fedopl.report.parts import Key
from fedopl.report.words.numbers import Span

# In inches: the height of a dot's row, the room between clients, for the axis and for the title.
_ROW, _BETWEEN, _FOOT, _HEAD = 0.17, 0.16, 0.5, 0.26
_MOST_LETTERS = 20
_LEAST = 0.1  # differences below this do not fill the figure
_AXIS = "E[√KL] from the mixture; 0 is no difference"
# Shapes differ as well, for readers who cannot distinguish the colours.
_MARKS = tuple(zip(SOURCE_COLOURS, "osD", strict=True))
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
    head = _HEAD if any(notes) else 0.06
    width, group = WIDTH - left - right, _ROW * len(places) + _BETWEEN
    body = group * len(items)
    furthest = max([span.high for item in items for span in item.spans if span] + [_LEAST])

    def draw(figure: Figure) -> None:
        axes = axes_at(figure, left, _FOOT, width, body)
        _style(axes, body, furthest)
        beside = axes.get_yaxis_transform()  # across in widths of the axes, down in inches
        for place, item in enumerate(items):
            top = group * place
            if place:
                axes.plot([0, 1], [top, top], color=LINE, lw=0.6, transform=beside)
            at: dict[str, Any] = {"va": "center", "color": INK, "transform": beside}
            axes.text(-0.08 / width, top + group / 2, labels[place], ha="right", **at)
            axes.text(1 + 0.08 / width, top + group / 2, item.note, **at)
            for row, (span, mark) in enumerate(zip(item.spans, places, strict=True)):
                _dot(axes, top + _BETWEEN / 2 + _ROW * (row + 0.5), span, _MARKS[mark])
        if any(notes):
            axes.text(1 + 0.08 / width, -0.08, "largest", color=QUIET, transform=beside)
        figure.text(1 - 0.12 / WIDTH, 0.09 / (head + body + _FOOT), _AXIS, ha="right", color=QUIET)

    return Drawing(name=name, height=head + body + _FOOT, draw=draw)


def _style(axes: Axes, body: float, furthest: float) -> None:
    axes.set_xlim(-0.02 * furthest, 1.04 * furthest)
    axes.set_ylim(body, 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.axvline(0, color=QUIET, linewidth=1)
    set_short_ticks(axes.xaxis, 5)


def _dot(axes: Axes, down: float, span: Span | None, mark: tuple[str, str]) -> None:
    colour, shape = mark
    if span is None:
        axes.plot(0, down, "x", color=colour, markersize=4.5, clip_on=False)
        beside = axes.get_yaxis_transform()
        axes.text(0.05, down, "not reported", va="center", size=8.5, color=QUIET, transform=beside)
        return
    axes.plot([span.low, span.high], [down, down], color=colour, linewidth=2)
    axes.plot(span.value, down, shape, color=colour, markersize=5.5, clip_on=False)
