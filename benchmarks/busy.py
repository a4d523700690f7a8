"""Eigenvalues on an idle and on a busy machine: with a thread for each core, and with one.

Ten covariance matrices at once, as models of ten actions need them. "All threads" is
`numpy.linalg.eigh` as BLAS runs it by default, "one thread" is what fedopl does. On the busy
machine as many other processes as there are cores compute all the time. Milliseconds are by the
clock, as waiting for others is what costs here. Each size runs in a process of its own, in turns.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from harness import Column, Options, Row, Table, in_child, in_turns, options, spread, write

from fedopl.base.decompositions import eigh

SIZES, QUICK = (20, 30, 40, 140), (30,)  # columns
N_MATRICES, N_ROWS = 10, 1_000
# What keeps a core busy; it ends by itself if nobody ends it.
WORK = "import time\nend = time.monotonic() + 300\nwhile time.monotonic() < end: sum(range(10**5))"
READING = """
On an idle machine threads gain nothing at these sizes. On a busy one they wait for each other: most
where there are few columns, as there is least to do between two meetings. Up to 25 columns, LAPACK
uses no threads.
"""
COLUMNS = (
    Column("columns", "{columns}"),
    Column("machine", "{machine}", text=True),
    Column("all threads, ms", "{all_median:~3}"),
    Column("least – most", "{all_least:~3} – {all_most:~3}", text=True),
    Column("one thread, ms", "{one_median:~3}"),
    Column("least – most", "{one_least:~3} – {one_most:~3}", text=True),
    Column("ratio", "{ratio:.1f}×"),
)


@contextmanager
def at_work(n_processes: int) -> Iterator[None]:
    """As many processes that compute all the time."""
    others = [subprocess.Popen([sys.executable, "-c", WORK]) for _ in range(n_processes)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def measure_here(n_columns: str, turns: str) -> dict[str, list[float]]:
    """In a process of its own: milliseconds of both."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((N_MATRICES, N_ROWS, int(n_columns)))
    matrices = np.swapaxes(rows, 1, 2) @ rows / N_ROWS
    ways = {"all": lambda: np.linalg.eigh(matrices), "one": lambda: eigh(matrices)}
    found = in_turns(ways, int(turns))
    return {name: [1e3 * second for second in timed.seconds] for name, timed in found.items()}


def measure(n_columns: int, machine: str, turns: int) -> Row:
    """One row of the table."""
    n_cores = os.cpu_count() or 1
    threads = {"OPENBLAS_NUM_THREADS": str(n_cores)}
    with at_work(n_cores if machine == "busy" else 0):
        found = in_child(__file__, str(n_columns), str(turns), **threads)
    row: Row = {"columns": n_columns, "machine": machine}
    for name, milliseconds in found.items():
        row |= spread(milliseconds, f"{name}_")
    return row | {"ratio": row["all_median"] / row["one_median"]}


def main(given: Options) -> None:
    """Measure and write."""
    if given.measure:
        print(json.dumps(measure_here(*given.measure)))
        return
    turns, sizes = given.turns(20), given.sizes(SIZES, QUICK)
    rows = [measure(size, machine, turns) for machine in ("idle", "busy") for size in sizes]
    write(__file__, given, Table(COLUMNS, rows))


if __name__ == "__main__":
    main(options(__doc__))
