"""Runs many cells in parallel; resumable, with an estimate of the time left."""

import csv
import io
import json
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from fedopl.base.files import write_atomically
from fedopl.reproduction.experiment_cells import Cell, Regret, compute

RegretTable = dict[Cell, list[Regret]]


@dataclass(frozen=True, kw_only=True)
class CellProgress:
    """How far a run is."""

    done: int
    total: int
    seconds_left: float


def run_cells(
    cells: Iterable[Cell], folder: Path, tell: Callable[[CellProgress], None], workers: int | None
) -> RegretTable:
    """Compute the cells that are not in the folder yet, and read the others."""
    wanted = sorted(set(cells))
    table = {cell: found for cell in wanted if (found := _read(folder, cell)) is not None}
    missing = [cell for cell in wanted if cell not in table]
    # The longest first, so that no core waits for the last of them.
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
    """One BLAS thread for each process: together they fill the machine."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)


def _path(folder: Path, cell: Cell) -> Path:
    return folder / "cells" / f"{cell.name}.json"


def _read(folder: Path, cell: Cell) -> list[Regret] | None:
    try:
        content = json.loads(_path(folder, cell).read_text(encoding="utf-8"))
        return [Regret(**row) for row in content]
    except (OSError, ValueError, TypeError):  # not computed yet, or by another version
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
