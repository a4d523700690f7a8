"""Value against budget: the curve with intervals, the chosen point, and assignment by lot."""

from dataclasses import dataclass

from matplotlib.figure import Figure

from fedopl.report.figures.colours import ACCENT, INK, LINE, QUIET
from fedopl.report.figures.drawing import WIDTH, Drawing, axes_at
from fedopl.report.figures.ticks import set_short_ticks
from fedopl.report.parts import Key
from fedopl.report.words.numbers import Span

# In inches: the figure's height, and the room around the curve.
_HEIGHT, _FOOT, _HEAD, _LEFT, _RIGHT = 2.8, 0.62, 0.12, 0.62, 0.2

CURVE_KEYS = (
    Key(colour="accent", text="the learned policy, with 95 % intervals", mark="■"),
    Key(colour="ink", text="what was chosen", mark="●"),
    Key(colour="quiet", text="the best action by lot", mark="□"),
)


@dataclass(frozen=True, kw_only=True)
class Spent:
    """The gain at one amount spent."""

    budget: float
    gain: Span


def budget_chart(
    curve: list[Spent], chosen: Spent, lots: list[tuple[float, float]], axis: str
) -> Drawing:
    """One panel: budgets on the horizontal axis, gains on the vertical axis."""

    def draw(figure: Figure) -> None:
        axes = axes_at(figure, _LEFT, _FOOT, WIDTH - _LEFT - _RIGHT, _HEIGHT - _FOOT - _HEAD)
        across = [point.budget for point in curve]
        low, high = [p.gain.low for p in curve], [p.gain.high for p in curve]
        axes.fill_between(across, low, high, color=ACCENT, alpha=0.2, linewidth=0)
        axes.plot(across, [p.gain.value for p in curve], "-", color=ACCENT, linewidth=1.6)
        if lots:
            axes.plot(*zip(*lots, strict=True), "--", color=QUIET, linewidth=1.2)
            axes.plot(*lots[-1], "s", color=QUIET, mfc="none", markersize=5)
        axes.axvline(chosen.budget, color=LINE, linewidth=1)
        axes.plot(chosen.budget, chosen.gain.value, "o", color=INK, markersize=6)
        axes.axhline(0, color=LINE, linewidth=0.8)
        axes.set_xlim(left=0)
        set_short_ticks(axes.xaxis, 5)
        set_short_ticks(axes.yaxis, 4)
        axes.tick_params(axis="y", labelcolor=QUIET)
        axes.grid(axis="y", color=LINE, linewidth=0.6)
        axes.set_axisbelow(True)
        figure.text(1 - _RIGHT / WIDTH, 0.09 / _HEIGHT, axis, ha="right", color=QUIET)

    return Drawing(name="budget", height=_HEIGHT, draw=draw)
