"""Lines over steps: a training curve over rounds, and a search for weights step by step."""

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedopl.report.figures.colours import ACCENT, LINE, QUIET
from fedopl.report.figures.drawing import WIDTH, Drawing, axes_at
from fedopl.report.figures.ticks import set_short_ticks
from fedopl.report.parts import Key

# In inches: the figure's height, and the room for both axes' labels.
_HEIGHT, _LEFT, _FOOT = 2.1, 0.75, 0.45
_FEW = 40  # steps with a mark each
ASCENT_KEYS = (
    Key(colour="accent", text="regret of the client that loses most", mark="●"),
    Key(colour="quiet", text="the game's gap", mark="□"),
)


def curve(name: str, numbers: list[float], axis: str) -> Drawing:
    """A line with one number for each round."""

    def plot(axes: Axes) -> None:
        axes.plot(range(1, len(numbers) + 1), numbers, color=ACCENT, linewidth=1.8)
        axes.plot(len(numbers), numbers[-1], "o", color=ACCENT, markersize=5)

    return _over_steps(name, plot, "round", axis)


def ascent_chart(name: str, largest: list[float], gaps: list[float], axis: str) -> Drawing:
    """The largest regret and the gap after each step."""
    steps = range(1, len(largest) + 1)
    solid, dashed = ("o-", "s--") if len(largest) <= _FEW else ("-", "--")

    def plot(axes: Axes) -> None:
        axes.plot(steps, largest, solid, color=ACCENT, lw=1.6, markersize=4.5)
        axes.plot(steps, gaps, dashed, color=QUIET, mfc="none", lw=1.2, markersize=4)
        axes.set_ylim(bottom=min(0.0, *largest, *gaps))

    return _over_steps(name, plot, "step", axis)


def _over_steps(name: str, plot: Callable[[Axes], None], step: str, axis: str) -> Drawing:
    """A line chart with whole numbers across, plain numbers up, and grid lines."""

    def draw(figure: Figure) -> None:
        axes = axes_at(figure, _LEFT, _FOOT, WIDTH - _LEFT - 0.15, _HEIGHT - _FOOT - 0.12)
        plot(axes)
        axes.set_xlabel(step)
        axes.set_ylabel(axis)
        set_short_ticks(axes.xaxis, 6, whole=True)
        set_short_ticks(axes.yaxis, 4)
        axes.grid(axis="y", color=LINE, linewidth=0.6)

    return Drawing(name=name, height=_HEIGHT, draw=draw)
