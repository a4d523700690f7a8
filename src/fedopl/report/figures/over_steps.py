"""Lines over steps: a training curve over rounds, and a search for weights step by step."""

from matplotlib.figure import Figure

from fedopl.report.figures.drawing import ACCENT, QUIET, WIDTH, axes_at, drawn, style_over_steps
from fedopl.report.parts import Key

# In inches: the figure's height, and the room for both axes' labels.
_HEIGHT, _LEFT, _FOOT = 2.1, 0.75, 0.45
_FEW = 40  # steps with a mark each
ASCENT_KEYS = (
    Key(colour="accent", text="regret of the client that loses most", mark="●"),
    Key(colour="quiet", text="the game's gap", mark="□"),
)


def curve(name: str, numbers: list[float], axis: str) -> str:
    """One number for each round."""

    def draw(figure: Figure) -> None:
        axes = axes_at(figure, _LEFT, _FOOT, WIDTH - _LEFT - 0.15, _HEIGHT - _FOOT - 0.12)
        rounds = range(1, len(numbers) + 1)
        axes.plot(rounds, numbers, color=ACCENT, linewidth=1.8)
        axes.plot(len(numbers), numbers[-1], "o", color=ACCENT, markersize=5)
        style_over_steps(axes, "round", axis)

    return drawn(name, _HEIGHT, draw)


def ascent_chart(name: str, largest: list[float], gaps: list[float], axis: str) -> str:
    """The largest regret and the gap after each step."""

    def draw(figure: Figure) -> None:
        axes = axes_at(figure, _LEFT, _FOOT, WIDTH - _LEFT - 0.15, _HEIGHT - _FOOT - 0.12)
        steps = range(1, len(largest) + 1)
        marked = len(largest) <= _FEW
        axes.plot(steps, largest, "o-" if marked else "-", color=ACCENT, lw=1.6, markersize=4.5)
        shape = "s--" if marked else "--"
        axes.plot(steps, gaps, shape, color=QUIET, mfc="none", lw=1.2, markersize=4)
        axes.set_ylim(bottom=min(0.0, *largest, *gaps))
        style_over_steps(axes, "step", axis)

    return drawn(name, _HEIGHT, draw)
