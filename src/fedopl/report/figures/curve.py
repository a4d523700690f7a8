"""A curve over rounds."""

from matplotlib.figure import Figure

from fedopl.report.figures.drawing import ACCENT, WIDTH, axes_at, drawn, style_over_steps

HEIGHT, LEFT, FOOT = 2.1, 0.75, 0.45


def curve(name: str, numbers: list[float], axis: str) -> str:
    """One number for each round."""

    def draw(figure: Figure) -> None:
        axes = axes_at(figure, LEFT, FOOT, WIDTH - LEFT - 0.15, HEIGHT - FOOT - 0.12)
        rounds = range(1, len(numbers) + 1)
        axes.plot(rounds, numbers, color=ACCENT, linewidth=1.8)
        axes.plot(len(numbers), numbers[-1], "o", color=ACCENT, markersize=5)
        style_over_steps(axes, "round", axis)

    return drawn(name, HEIGHT, draw)
