"""Heat strips: where each row's mass lies, as shades and as numbers."""

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fedopl.base.arrays import FloatArray
from fedopl.report.figures.drawing import (
    ACCENT,
    LINE,
    QUIET,
    WIDTH,
    axes_at,
    drawn,
    label_room,
    short,
)

# In inches: the height of a strip, the room above a first one, for titles, the axis and notes.
_ROW, _ABOVE, _HEAD, _FOOT, _RIGHT = 0.26, 0.3, 0.3, 0.27, 0.68
_DARKEST = 0.5  # letters must stay readable on it
_MOST_LETTERS = 20


@dataclass(frozen=True, eq=False, kw_only=True)
class Strip:
    """Shares that add up to one, a note at the end, and a heading above the first of a kind."""

    label: str
    shares: FloatArray  # (n_columns,)
    note: str
    heading: str = ""


def strips(name: str, items: list[Strip], columns: list[str], axis: str, notes: str) -> str:
    """One strip below the other; `axis` says what the columns are, `notes` what the notes are."""
    left = label_room([short(item.label, _MOST_LETTERS) for item in items])
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

    return drawn(name, _HEAD + body + _FOOT, draw)


def _strip(axes: Axes, item: Strip, down: float) -> None:
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
