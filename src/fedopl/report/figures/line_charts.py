"""Charts of lines: along a path of mixtures, and over steps of learning or of a search."""

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedopl.report.figures.colours import ACCENT, ACTIONS, INK, LINE, QUIET
from fedopl.report.figures.drawing import WIDTH, Drawing, axes_at, set_short_ticks
from fedopl.report.parts import Key
from fedopl.report.words.numbers import Span

# In inches: the figure's height, and the room around and between the two panels.
_HEIGHT, _FOOT, _HEAD, _LEFT, _BETWEEN, _RIGHT = 2.55, 0.5, 0.32, 0.55, 0.62, 0.15
_APART = 0.012  # of the axis: so that intervals at the same α do not cover each other
_AXIS = "α: share of the others' weight moved"
_SHIFT = Key(colour="action-2", text="shift", mark="■")


@dataclass(frozen=True, kw_only=True)
class Along:
    """The values and bounds at one α."""

    alpha: float
    at_target: Span
    in_base: Span
    regret: float
    shift: float | None  # None where not reported

    @property
    def total(self) -> float:
        """The whole bound."""
        return self.regret + (self.shift or 0.0)


def path_keys(target: str, *, shift: bool) -> tuple[Key, ...]:
    """The legend; without the shift if it is not known."""
    return (
        Key(colour="accent", text=f"value at {target}", mark="●"),
        Key(colour="quiet", text="value in all together (n̄)", mark="□"),
        *((_SHIFT,) if shift else ()),
        Key(colour="action-1", text="regret bound for the mixture", mark="■"),
    )


def path_chart(name: str, points: list[Along], constant: float, rows: str) -> Drawing:
    """Two panels over the same values of α; `rows` says which rows are valued."""
    width = (WIDTH - _LEFT - _BETWEEN - _RIGHT) / 2

    def draw(figure: Figure) -> None:
        values = axes_at(figure, _LEFT, _FOOT, width, _HEIGHT - _FOOT - _HEAD)
        bounds = axes_at(figure, _LEFT + width + _BETWEEN, _FOOT, width, _HEIGHT - _FOOT - _HEAD)
        in_base, at_target = [p.in_base for p in points], [p.at_target for p in points]
        _series(values, points, in_base, _APART, (QUIET, "s", "--"))
        _series(values, points, at_target, -_APART, (ACCENT, "o", "-"))
        _bounds(bounds, points)
        titles = (f"value on {rows}", f"bound at constant {constant:g}")
        for axes, title in zip((values, bounds), titles, strict=True):
            axes.set_title(title, color=QUIET, pad=7)
            axes.set_xlim(-0.05, 1.05)
            axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
            mark_heights(axes)
        figure.text(1 - _RIGHT / WIDTH, 0.09 / _HEIGHT, _AXIS, ha="right", color=QUIET)

    return Drawing(name=name, height=_HEIGHT, draw=draw)


def mark_heights(axes: Axes) -> None:
    """Mark heights by short numbers and grid lines."""
    set_short_ticks(axes.yaxis, 4)
    axes.tick_params(axis="y", labelcolor=QUIET)
    axes.grid(axis="y", color=LINE, linewidth=0.6)
    axes.set_axisbelow(True)


def _series(
    axes: Axes, points: list[Along], spans: list[Span], aside: float, look: tuple[str, str, str]
) -> None:
    colour, shape, line = look
    across = [point.alpha + aside for point in points]
    inside = "none" if shape == "s" else colour
    axes.plot(across, [span.value for span in spans], line, color=colour, linewidth=1)
    axes.plot(across, [s.value for s in spans], shape, color=colour, mfc=inside, markersize=5)
    for place, span in zip(across, spans, strict=True):
        if span.is_known:
            axes.plot([place, place], [span.low, span.high], color=colour, linewidth=1.6)


def _bounds(axes: Axes, points: list[Along]) -> None:
    across = [point.alpha for point in points]
    regret = [point.regret for point in points]
    total = [point.total for point in points]
    axes.fill_between(across, 0, regret, color=ACTIONS[0], linewidth=0)
    axes.fill_between(across, regret, total, color=ACTIONS[1], linewidth=0)
    axes.plot(across, regret, "--", color=QUIET, linewidth=1)
    axes.plot(across, total, "-", color=INK, linewidth=1.4)
    axes.plot(across, total, "o", color=INK, markersize=3.5)
    axes.set_ylim(0, 1.08 * max(total))


# In inches: the figure's height, and the room for both axes' labels.
_LOW, _WIDE, _LABELS = 2.1, 0.75, 0.45
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
        axes = axes_at(figure, _WIDE, _LABELS, WIDTH - _WIDE - 0.15, _LOW - _LABELS - 0.12)
        plot(axes)
        axes.set_xlabel(step)
        axes.set_ylabel(axis)
        set_short_ticks(axes.xaxis, 6, whole=True)
        set_short_ticks(axes.yaxis, 4)
        axes.grid(axis="y", color=LINE, linewidth=0.6)

    return Drawing(name=name, height=_LOW, draw=draw)
