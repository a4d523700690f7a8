"""Along a path of mixtures: values with intervals on the left, parts of the bound on the right."""

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedopl.report.figures.colours import ACCENT, ACTIONS, INK, LINE, QUIET
from fedopl.report.figures.drawing import WIDTH, Drawing, axes_at
from fedopl.report.figures.ticks import set_short_ticks
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
            set_short_ticks(axes.yaxis, 4)
            axes.tick_params(axis="y", labelcolor=QUIET)
            axes.grid(axis="y", color=LINE, linewidth=0.6)
            axes.set_axisbelow(True)
        figure.text(1 - _RIGHT / WIDTH, 0.09 / _HEIGHT, _AXIS, ha="right", color=QUIET)

    return Drawing(name=name, height=_HEIGHT, draw=draw)


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
    total = [point.regret + (point.shift or 0.0) for point in points]
    axes.fill_between(across, 0, regret, color=ACTIONS[0], linewidth=0)
    axes.fill_between(across, regret, total, color=ACTIONS[1], linewidth=0)
    axes.plot(across, regret, "--", color=QUIET, linewidth=1)
    axes.plot(across, total, "-", color=INK, linewidth=1.4)
    axes.plot(across, total, "o", color=INK, markersize=3.5)
    axes.set_ylim(0, 1.08 * max(total))
