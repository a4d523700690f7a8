"""How much memory and time learning takes as rows grow: from arrays, from Parquet, and on disk.

40 features, 4 actions; `fedopl.learn` with its defaults but marginal propensities: cross-fitted,
solved, valued on a quarter of the rows, and described. Each way runs in a process of its own, first
on few rows, so that imports do not count. "Added" is the peak above what the process had before:
for arrays, above the arrays themselves; for Parquet, above nothing, so that the rows are part of
it. "Times the rows" divides the whole, rows included, by 8 bytes a number. "Peak" is that of the
whole process, with Python and all libraries. Rows on disk are first read from the file into arrays
beside it, which is part of the time. "Private" is such a study with differential privacy, ε = 1.
Libraries may use all cores, as they do for users. "Cores" is processor time over time. For rows on
disk, two threads read, sort and score the next rows while others are processed. If other programs
used the processor, and this one got less than half a core, seconds are left out.

`--again` measures some ways anew and leaves the others as they were.
"""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness import (
    ONE_THREAD,
    Column,
    Options,
    Row,
    Table,
    in_child,
    kept_rows,
    options,
    spread,
    write,
)
from problem import N_ACTIONS, N_FEATURES, draw
from process import cost, peak

SIZES = (10_000, 100_000, 1_000_000, 2_000_000, 20_000_000)
QUICK = (1_000,)
IN_MEMORY = 2_000_000  # rows; there is no room for more
FEW = 500
LEAST_CORES = 0.5
ALL_CORES = dict.fromkeys(ONE_THREAD, str(os.cpu_count()))
CHUNK = 100_000  # rows of a file's row group
COLUMNS = (
    Column("rows", "{rows:,}"),
    Column("method", "{method}", text=True),
    Column("added", "{median:~3} MB"),
    Column("least – most", "{least:~3} – {most:~3}", text=True),
    Column("times the rows", "{times:.2f}×"),
    Column("peak", "{peak_mb:~3} MB"),
    Column("seconds", "{seconds_median:~3}"),
    Column("least – most", "{seconds_least:~3} – {seconds_most:~3}", text=True),
    Column("µs a row", "{us:~3}"),
    Column("cores", "{cores:.2f}"),
)


def write_parquet(path: Path, n_rows: int) -> None:
    """The problem's rows as a file, a row group at a time."""
    import pyarrow as pa
    from pyarrow import parquet

    writer = None
    for start in range(0, n_rows, CHUNK):
        contexts, actions, rewards = draw(min(CHUNK, n_rows - start), seed=start)
        columns = {f"x{i}": contexts[:, i] for i in range(N_FEATURES)}
        table = pa.table({**columns, "arm": [f"a{a}" for a in actions], "reward": rewards})
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def from_arrays(path: Path) -> Callable[[], object]:
    """Rows that are in memory already."""
    import numpy as np

    import fedopl

    with np.load(path.with_suffix(".npz")) as kept:
        data = fedopl.LoggedData(kept["contexts"], kept["actions"], kept["rewards"])
    return lambda: learned(data)


def from_parquet(path: Path) -> Callable[[], object]:
    """Rows read from a file, all of them into memory."""
    import fedopl

    return lambda: learned(fedopl.read_logged(path, schema()))


def on_disk(path: Path) -> Callable[[], object]:
    """Rows that stay on disk, read from a file batch by batch."""
    import fedopl

    def learn() -> object:
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            return learned(fedopl.read_logged(path, schema(), on_disk=folder))

    return learn


def learned(data: object) -> object:
    """From rows to a policy and its value."""
    import fedopl

    plan = fedopl.NuisancePlan(propensity="marginal")
    return fedopl.learn({"all": data}, basis="linear", nuisances=plan, evaluation=0.25)


def on_disk_privately(path: Path) -> Callable[[], object]:
    """The same in a study with differential privacy."""
    import fedopl

    def learn() -> object:
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            data = fedopl.read_logged(path, schema(), on_disk=folder)
            ranges = {f"x{column}": (-2.0, 2.0) for column in range(N_FEATURES)}
            return fedopl.learn(
                {"all": data},
                basis="linear",
                privacy=fedopl.PrivacyPlan(
                    epsilon=1.0, delta=1e-9, outcome=(-10, 10), ranges=ranges
                ),
                declared=fedopl.Declared(overlap=0.1),
            )

    return learn


def schema() -> object:
    """What the columns of the file mean."""
    import fedopl

    return fedopl.Schema(
        action="arm",
        actions=[f"a{action}" for action in range(N_ACTIONS)],
        reward="reward",
        direction="higher",
        numeric=[f"x{column}" for column in range(N_FEATURES)],
    )


METHODS: dict[str, Callable[[Path], Callable[[], object]]] = {
    "arrays in memory": from_arrays,
    "Parquet, read whole": from_parquet,
    "Parquet, on disk": on_disk,
    "Parquet, on disk, private": on_disk_privately,
}
STREAMED = (on_disk, on_disk_privately)


def measure_here(name: str, folder: str, n_rows: str) -> Row:
    """In a process of its own: seconds, and bytes at the peak."""
    METHODS[name](Path(folder, "few.parquet"))()
    work = METHODS[name](Path(folder, f"{n_rows}.parquet"))
    _, found = cost(work)
    return {**found, "peak": peak()}


def write_here(folder: str, n_rows: str) -> int:
    """In a process of its own: the files that all are measured on."""
    import numpy as np

    for name, rows in (("few", FEW), (n_rows, int(n_rows))):
        if rows <= IN_MEMORY:
            np.savez(Path(folder, f"{name}.npz"), **draw(rows)._asdict())
        write_parquet(Path(folder, f"{name}.parquet"), rows)
    return 0


def measure(n_rows: int, turns: int, threads: dict[str, str], asked: tuple[str, ...]) -> list[Row]:
    """All ways on the same number of rows, in turns."""
    methods = [name for name in asked if n_rows <= IN_MEMORY or METHODS[name] in STREAMED]
    found: dict[str, list[Row]] = {name: [] for name in methods}
    with tempfile.TemporaryDirectory() as folder:
        in_child(__file__, "write", folder, str(n_rows))
        for _ in range(turns):
            for name, runs in found.items():
                runs.append(in_child(__file__, "memory", name, folder, str(n_rows), **threads))
    return [summary(name, n_rows, runs) for name, runs in found.items()]


def summary(name: str, n_rows: int, runs: list[Row]) -> Row:
    """A line of the table."""
    size = n_rows * (N_FEATURES + 2) * 8 / 2**20
    held = size if METHODS[name] is from_arrays else 0.0
    row = {"rows": n_rows, "method": name, "rows_mb": size}
    row |= spread(run["growth"] / 2**20 for run in runs)
    row |= spread((run["seconds"] for run in runs), "seconds_")
    total = row["median"] + held
    return awake(
        row
        | {
            "total_mb": total,
            "times": total / size,
            "peak_mb": max(run["peak"] for run in runs) / 2**20,
            "us": 1e6 * row["seconds_median"] / n_rows,
            "cores": sum(run["cpu"] for run in runs) / sum(run["seconds"] for run in runs),
        }
    )


def awake(row: Row) -> Row:
    """The same without seconds, if most of them were spent on waiting for others' processes."""
    if row["cores"] >= LEAST_CORES:
        return row
    return {name: value for name, value in row.items() if name[:7] != "seconds" and name != "us"}


def beside_kept(rows: list[Row], kept: list[Row]) -> list[Row]:
    """All that was kept, with these measured anew, by size."""
    found = {(row["rows"], row["method"]): row for row in [*kept, *rows]}
    return [found[key] for key in sorted(found, key=lambda key: (key[0], [*METHODS].index(key[1])))]


def main(given: Options) -> None:
    """Measure and write."""
    if given.measure:
        what, *arguments = given.measure
        print(json.dumps({"memory": measure_here, "write": write_here}[what](*arguments)))
        return
    sizes, turns = given.sizes(SIZES, QUICK), given.turns()
    threads = ONE_THREAD if given.quick else ALL_CORES
    again = given.chosen["again"]
    asked = again or tuple(METHODS)
    rows = [row for n_rows in sizes for row in measure(n_rows, turns, threads, asked)]
    if again:
        rows = beside_kept(rows, kept_rows(__file__, given))
    write(__file__, given, Table(COLUMNS, rows))


if __name__ == "__main__":
    main(options(__doc__, again=tuple(METHODS)))
