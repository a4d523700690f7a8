"""Runs `fedopl reproduce`: cells in parallel, a CSV, figures, claims. A run can be resumed."""

import csv
import io
import json
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.files import write_atomically
from fedopl.reproduction.claims import as_json, as_markdown, cells_for_claims, judge
from fedopl.reproduction.experiment_cells import Cell, Pipeline, Regret, RegretTable, compute
from fedopl.simulation.paper import Kind, Reading

AGAINST = "optimum"  # what regrets are measured against
# Blue, orange, green, purple: distinct in print and to the colour-blind (Okabe & Ito 2008).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure of the paper."""

    name: str
    title: str
    kind: Kind
    mixture: str
    client: str
    grid: tuple[int, ...]


HOMOGENEOUS_GRID = (100, 200, 300, 400, 500, 600, 700, 800, 900, 1000)
HETEROGENEOUS_GRID = (250, 500, 1000, 2000, 4000, 6000, 8000, 10_000)


def _figure(name: str, formula: str, kind: Kind, mixture: str, client: int) -> Figure:
    return Figure(
        name=name,
        title=f"{kind.capitalize()} clients{formula}, client {client}",
        kind=kind,
        mixture=mixture,
        client=f"client {client}",
        grid=HOMOGENEOUS_GRID if kind == "homogeneous" else HETEROGENEOUS_GRID,
    )


FIGURES = {
    "homogeneous": [_figure("homogeneous", "", "homogeneous", "empirical", 1)],
    "heterogeneous": [_figure("heterogeneous", ", λ = n̄", "heterogeneous", "empirical", 1)],
    "skewed": [_figure("skewed", ", λ = n̄ + ε̄ (α = 0.2)", "heterogeneous", "skewed", 1)],
    "client-2": [
        _figure("client-2-empirical", ", λ = n̄", "heterogeneous", "empirical", 2),
        _figure("client-2-skewed", ", λ = n̄ + ε̄", "heterogeneous", "skewed", 2),
    ],
}


def curves(
    table: RegretTable, figure: Figure, reading: Reading, pipeline: Pipeline
) -> dict[str, tuple[IntArray, FloatArray]]:
    """For each line of the figure: the sizes, and regrets by size and seed."""
    mixture, here, c = figure.mixture, figure.client, figure.client.removeprefix("client ")
    learned = "\\hat\\pi_\\lambda"
    wanted = {
        f"$R_\\lambda({learned})$ global regret, global policy": (mixture, "global", "global"),
        f"$R_{c}({learned})$ local regret, global policy": (mixture, "global", here),
        f"$R_{c}(\\hat\\pi_{c})$ local regret, local policy": ("", "local", here),
        f"$R_{c}(\\hat\\pi_H)$ local regret, HierOPO": ("", "hieropo", here),
    }
    return {
        label: _curve(table, figure, reading, pipeline, (*key, AGAINST))
        for label, key in wanted.items()
    }


def _curve(
    table: RegretTable, figure: Figure, reading: Reading, pipeline: Pipeline, key: tuple[str, ...]
) -> tuple[IntArray, FloatArray]:
    by_size: dict[int, list[float]] = {}
    for cell, regrets in table.items():
        if cell != Cell.of(figure.kind, reading, pipeline, cell.n_rows, cell.seed):
            continue
        for r in regrets:
            if (r.mixture, r.policy, r.where, r.against) == key and cell.n_rows in figure.grid:
                by_size.setdefault(cell.n_rows, []).append(r.regret)
    sizes = sorted(by_size)
    return np.array(sizes, np.int64), np.array([by_size[size] for size in sizes])


def draw(
    table: RegretTable, figure: Figure, reading: Reading, pipeline: Pipeline, folder: Path
) -> Path:
    """Draw one figure as PNG and SVG; return the path of the PNG."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(6.4, 4.2), layout="constrained")
    axes = canvas.subplots()
    lines = curves(table, figure, reading, pipeline)
    floor = _floor(lines)
    for (label, curve), colour in zip(lines.items(), COLOURS, strict=True):
        if len(curve[0]):
            _line(axes, curve, floor, label, colour)
    axes.set_yscale("log")
    axes.set_ylim(bottom=floor)
    axes.set_xlabel("total number of rows n")
    axes.set_ylabel(f"regret against the {AGAINST}")
    axes.set_title(f"{figure.title}\n{pipeline} pipeline, reading “{reading}”", fontsize=10)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8)
    path = folder / f"{figure.name}-{reading}-{pipeline}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(path, dpi=150)
    canvas.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    return path


def _line(
    axes: Any, curve: tuple[IntArray, FloatArray], floor: float, label: str, colour: str
) -> None:
    sizes, regrets = curve
    mean = regrets.mean(axis=1)
    spread = regrets.std(axis=1, ddof=1) if regrets.shape[1] > 1 else np.zeros_like(mean)
    low, high = np.maximum(mean - spread, floor), mean + spread
    axes.plot(sizes, np.maximum(mean, floor), label=label, color=colour, marker="o", markersize=3)
    axes.fill_between(sizes, low, high, color=colour, alpha=0.18, linewidth=0)


def _floor(lines: dict[str, tuple[IntArray, FloatArray]]) -> float:
    """Where the axis and the bands end, since a logarithmic scale has no zero."""
    means = [regrets.mean(axis=1) for _, regrets in lines.values() if len(regrets)]
    positive = [mean[mean > 0].min() for mean in means if (mean > 0).any()]
    return float(min(positive, default=1e-3)) / 3


@dataclass(frozen=True, kw_only=True)
class CellProgress:
    """The progress of a run."""

    done: int
    total: int
    seconds_left: float


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Which of the paper's experiments to repeat, and how often."""

    experiments: list[str]
    readings: list[Reading]
    pipeline: Pipeline
    n_seeds: int  # for each figure
    n_draws: int  # for each claim
    most_rows: int


def run_reproduction(
    scope: Scope, folder: Path, tell: Callable[[CellProgress], None], workers: int | None = None
) -> list[Path]:
    """Compute the missing cells, write all results, and return the files written."""
    readings, pipeline = scope.readings, scope.pipeline
    figures = [figure for name in scope.experiments for figure in FIGURES[name]]
    wanted = [
        Cell.of(figure.kind, reading, pipeline, n, seed)
        for reading in readings
        for figure in figures
        for n in figure.grid
        for seed in range(scope.n_seeds)
        if n <= scope.most_rows
    ]
    for_claims = [c for r in readings for c in cells_for_claims(r, pipeline, scope.n_draws)]
    table = run_cells([*wanted, *for_claims], folder, tell, workers)
    shown = {cell: table[cell] for cell in wanted}
    regrets = folder / f"regrets-{pipeline}.csv"
    write_atomically(regrets, as_csv(table).encode())
    written = [regrets]
    for figure in figures:
        # All squares are one in the homogeneous world, so both readings give the same draws.
        once = readings[:1] if figure.kind == "homogeneous" else readings
        written += [draw(shown, figure, reading, pipeline, folder) for reading in once]
    if scope.n_draws > 1:
        judged = {(reading, pipeline): judge(table, reading, pipeline) for reading in readings}
        for name, content in (("md", as_markdown(judged)), ("json", as_json(judged))):
            written.append(folder / f"claims-{pipeline}.{name}")
            write_atomically(written[-1], content.encode())
    return written


def run_cells(
    cells: Iterable[Cell], folder: Path, tell: Callable[[CellProgress], None], workers: int | None
) -> RegretTable:
    """Compute the cells that are not in the folder yet, and read the others."""
    wanted = sorted(set(cells))
    table = {cell: found for cell in wanted if (found := _read(folder, cell)) is not None}
    missing = [cell for cell in wanted if cell not in table]
    # Start with the longest cells, so that no core waits for a long one at the end.
    missing.sort(key=lambda cell: -cell.n_rows)
    started, resumed = time.monotonic(), len(table)
    with ProcessPoolExecutor(workers, initializer=_one_thread) as pool:
        running = {pool.submit(compute, cell): cell for cell in missing}
        for future in as_completed(running):
            cell = running[future]
            table[cell] = future.result()
            _write(folder, cell, table[cell])
            done = len(table) - resumed
            left = (time.monotonic() - started) / done * (len(missing) - done)
            tell(CellProgress(done=len(table), total=len(wanted), seconds_left=left))
    return {cell: table[cell] for cell in wanted}


def _one_thread() -> None:
    """Use one BLAS thread per process, since the processes together fill the machine."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)


def _path(folder: Path, cell: Cell) -> Path:
    return folder / "cells" / f"{cell.name}.json"


def _read(folder: Path, cell: Cell) -> list[Regret] | None:
    try:
        content = json.loads(_path(folder, cell).read_text(encoding="utf-8"))
        return [Regret(**row) for row in content]
    except (OSError, ValueError, TypeError):  # not computed yet, or computed by another version
        return None


def _write(folder: Path, cell: Cell, found: list[Regret]) -> None:
    content = json.dumps([asdict(regret) for regret in found])
    write_atomically(_path(folder, cell), content.encode())


def as_csv(table: RegretTable) -> str:
    """One line for each regret, sorted: the same seeds give the same bytes."""
    names = [field.name for kind in (Cell, Regret) for field in fields(kind)]
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for cell in sorted(table):
        for regret in table[cell]:
            writer.writerow({**asdict(cell), **asdict(regret)})
    return text.getvalue()
