"""Runs `fedopl reproduce`: cells in parallel, a CSV, figures, claims. A run can be resumed."""

import csv
import io
import json
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from fedopl.base.files import write_atomically
from fedopl.reproduction.claims import as_json, as_markdown, cells_for_claims, judge
from fedopl.reproduction.experiment_cells import Cell, Pipeline, Regret, RegretTable, compute
from fedopl.reproduction.paper_figures import FIGURES, draw
from fedopl.simulation.paper import Reading


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
