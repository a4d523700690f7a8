"""One chart for each question, from results/*.json; the same numbers give the same bytes."""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

RESULTS = Path(__file__).parent / "results"
STYLE = {
    "svg.hashsalt": "fedopl",
    "svg.fonttype": "path",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e5e5e5",
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "legend.handlelength": 3.6,
}
# Ours in blue, with dashes for its variants; others apart by colour and by mark.
LOOKS: dict[str, dict[str, Any]] = {
    "fedopl": {"color": "#0b5fa5", "marker": "o", "linewidth": 2.8, "zorder": 5},
    "fedopl, blocks": {"color": "#0b5fa5", "marker": "o", "linestyle": ":"},
    "fedopl, evaluated": {"color": "#0b5fa5", "marker": "o", "linestyle": "--"},
    "fedopl, defaults": {"color": "#0b5fa5", "marker": "o", "linestyle": "-."},
    "numpy, Gram per fold": {"color": "#6b6b6b", "marker": "v"},
    "X.T @ X": {"color": "#6b6b6b", "marker": "", "linestyle": ":"},
    "scikit-learn, refitted": {"color": "#d95f02", "marker": "s"},
    "Vowpal Wabbit, Python": {"color": "#7a3fa0", "marker": "^"},
    "Vowpal Wabbit, text file": {"color": "#7a3fa0", "marker": "^", "linestyle": "--"},
    "Vowpal Wabbit, command line": {"color": "#7a3fa0", "marker": "^", "linestyle": ":"},
    "contextualbandits, DR": {"color": "#1b8a5a", "marker": "D"},
    "obp, IPW": {"color": "#c2185b", "marker": "P"},
    "econml, linear DR": {"color": "#9a7400", "marker": "X"},
}
Rows = list[dict[str, Any]]
ROOM = 4  # sizes closer than this factor have no room for two labels


def _by(rows: Rows, key: str) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for row in rows:
        found.setdefault(row[key], []).append(row)
    return found


def _lines(axes: Axes, groups: dict[str, Rows], across: str, up: str) -> None:
    """A line for each group that has the number, with its spread where there is one."""
    for name, rows in groups.items():
        there = [row for row in rows if up in row]
        if not there:
            continue
        look = LOOKS.get(name, {"marker": "o"})
        (line,) = axes.plot([r[across] for r in there], [r[up] for r in there], label=name, **look)
        if up == "median":
            low, high = ([row[end] for row in there] for end in ("least", "most"))
            at = [row[across] for row in there]
            axes.vlines(at, low, high, colors=line.get_color(), linewidth=1, alpha=0.6)


def _finish(axes: Axes, across: str, up: str, *, log_up: bool = True) -> None:
    axes.set_xscale("log")
    if log_up:
        axes.set_yscale("log")
    axes.set_xlabel(across)
    axes.set_title(up, loc="left", fontsize=10)
    axes.minorticks_off()
    sizes: list[float] = []
    for size in sorted({at for line in axes.lines for at in line.get_xdata()}, reverse=True):
        if not sizes or size * ROOM <= sizes[-1]:
            sizes.append(size)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.yaxis.set_major_formatter(lambda value, _place: f"{value:,.9f}".rstrip("0").rstrip("."))


def peers(rows: Rows) -> Figure:
    """Time and regret against n."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    groups = _by(rows, "method")
    _lines(left, groups, "rows", "median")
    _finish(left, "rows", "seconds from arrays to a policy")
    _lines(right, groups, "rows", "regret")
    _finish(right, "rows", "regret on 100,000 other rows")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    return figure


def clients(rows: Rows) -> Figure:
    """Overhead against the number of clients, and memory."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    colours = {"csoaa-exact": "#0b5fa5", "csoaa-sgd": "#d95f02"}
    for oracle, own in _by(rows, "oracle").items():
        at, colour = [row["clients"] for row in own], colours[oracle]
        for axes, ours, plain in ((left, "us", "plain_us"), (right, "mb", "plain_mb")):
            federation, loop = ([row[key] for row in own] for key in (ours, plain))
            axes.plot(at, federation, "o-", color=colour, label=f"{oracle}, federation")
            axes.plot(at, loop, "o:", color=colour, label=f"{oracle}, plain loop")
    _finish_by_clients(figure, left, right)
    return figure


def crowds(rows: Rows) -> Figure:
    """Time for each client against their number, and memory."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    at = [row["clients"] for row in rows]
    for axes, ours, plain in ((left, "us", "plain_us"), (right, "mb", "plain_mb")):
        axes.plot(at, [row[ours] for row in rows], "o-", color=COLOURS[0], label="federation")
        axes.plot(at, [row[plain] for row in rows], "o:", color=COLOURS[0], label="plain loop")
    _finish_by_clients(figure, left, right)
    return figure


def _finish_by_clients(figure: Figure, left: Axes, right: Axes) -> None:
    """Axes of time for each client and of memory, and one legend beside both."""
    _finish(left, "clients", "microseconds for each client", log_up=False)
    left.set_ylim(bottom=0)
    _finish(right, "clients", "memory added at the peak, MB")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)


def memory(rows: Rows) -> Figure:
    """Memory against rows."""
    figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
    own = _by(rows, "method")
    for (name, there), colour in zip(own.items(), COLOURS, strict=False):
        at = [row["rows"] for row in there]
        axes.plot(at, [row["total_mb"] for row in there], "o-", color=colour, label=name)
    sizes = sorted({(row["rows"], row["rows_mb"]) for row in rows})
    axes.plot(*zip(*sizes, strict=True), ":", color="#6b6b6b", label="the rows themselves")
    _finish(axes, "rows", "peak memory, rows included, MB")
    figure.legend(loc="outside right center", frameon=False)
    return figure


COLOURS = ("#0b5fa5", "#d95f02", "#1b8a5a", "#7a3fa0")
CHARTS = {"peers": peers, "clients": clients, "crowds": crowds, "memory": memory}


def draw_all(results: Path = RESULTS) -> None:
    """Draw what there are results for."""
    for name, chart in CHARTS.items():
        source = results / f"{name}.json"
        if source.exists():
            content = json.loads(source.read_text(encoding="utf-8"))
            with plt.rc_context(STYLE):
                figure = chart(content["tables"][0]["rows"])
                figure.savefig(results / f"{name}.svg", metadata={"Date": None})
            plt.close(figure)
