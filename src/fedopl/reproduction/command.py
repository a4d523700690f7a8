"""What `fedopl reproduce` does: cells, a CSV, figures, claims."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedopl.base.files import write_atomically
from fedopl.reproduction.claims import as_json, as_markdown, cells_for_claims, judge
from fedopl.reproduction.experiment_cells import Cell, Pipeline
from fedopl.reproduction.paper_figures import FIGURES, draw
from fedopl.reproduction.run_cells import CellProgress, as_csv, run_cells
from fedopl.simulation.paper import Reading


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Which of the paper's experiments to repeat, and how often."""

    experiments: list[str]
    readings: list[Reading]
    pipeline: Pipeline
    n_seeds: int  # behind each figure
    n_draws: int  # behind each claim
    most_rows: int


def run_reproduction(
    scope: Scope, folder: Path, tell: Callable[[CellProgress], None], workers: int | None = None
) -> list[Path]:
    """Compute what is missing, write everything, and name what was written."""
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
        same = figure.kind == "homogeneous"  # all squares are one there
        once = readings[:1] if same else readings
        written += [draw(shown, figure, reading, pipeline, folder) for reading in once]
    if scope.n_draws > 1:
        judged = {(reading, pipeline): judge(table, reading, pipeline) for reading in readings}
        for name, content in (("md", as_markdown(judged)), ("json", as_json(judged))):
            written.append(folder / f"claims-{pipeline}.{name}")
            write_atomically(written[-1], content.encode())
    return written
