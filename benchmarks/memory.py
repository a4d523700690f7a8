"""How much memory learning takes as rows grow: 40 features, 4 actions, `fedopl.learn`'s defaults.

Each way runs in a process of its own, first on few rows, so that imports do not count. "Added" is
the peak above what the process had before: for arrays, above the arrays themselves; for Parquet,
above nothing, so that the rows are part of it. "Times the rows" divides the whole, rows included,
by 8 bytes a number.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness import Column, Options, Row, Table, in_child, options, spread, write
from problem import N_ACTIONS, N_FEATURES, draw
from process import growth

SIZES = (10_000, 100_000, 1_000_000, 3_000_000)
QUICK = (4_000,)
FEW = 2_000
CHUNK = 100_000  # rows of a file's row group
COLUMNS = (
    Column("rows", "{rows:,}"),
    Column("method", "{method}", text=True),
    Column("added", "{median:~3} MB"),
    Column("least – most", "{least:~3} – {most:~3}", text=True),
    Column("times the rows", "{times:.2f}×"),
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
    return lambda: fedopl.learn({"all": data})


def from_parquet(path: Path) -> Callable[[], object]:
    """Rows read from a file, all of them into memory."""
    import fedopl

    schema = fedopl.Schema(
        action="arm",
        actions=[f"a{action}" for action in range(N_ACTIONS)],
        reward="reward",
        direction="higher",
        numeric=[f"x{column}" for column in range(N_FEATURES)],
    )
    return lambda: fedopl.learn({"all": fedopl.read_logged(path, schema)})


# Another way, such as rows streamed from the file, is another line here.
METHODS: dict[str, Callable[[Path], Callable[[], object]]] = {
    "arrays in memory": from_arrays,
    "Parquet, read whole": from_parquet,
}


def measure_here(name: str, folder: str, n_rows: str) -> int:
    """In a process of its own: bytes added at the peak."""
    METHODS[name](Path(folder, "few.parquet"))()
    return growth(METHODS[name](Path(folder, f"{n_rows}.parquet")))


def write_here(folder: str, n_rows: str) -> int:
    """In a process of its own: the files that all are measured on."""
    import numpy as np

    for name, rows in (("few", FEW), (n_rows, int(n_rows))):
        np.savez(Path(folder, f"{name}.npz"), **draw(rows)._asdict())
        write_parquet(Path(folder, f"{name}.parquet"), rows)
    return 0


def measure(n_rows: int, turns: int) -> list[Row]:
    """All ways on the same number of rows, in turns."""
    found: dict[str, list[float]] = {name: [] for name in METHODS}
    with tempfile.TemporaryDirectory() as folder:
        in_child(__file__, "write", folder, str(n_rows))
        for _ in range(turns):
            for name, values in found.items():
                values.append(in_child(__file__, "memory", name, folder, str(n_rows)) / 2**20)
    size = n_rows * (N_FEATURES + 2) * 8 / 2**20
    rows = []
    for name, values in found.items():
        row = {"rows": n_rows, "method": name, "rows_mb": size, **spread(values)}
        held = size if METHODS[name] is from_arrays else 0.0
        rows.append(
            row | {"total_mb": row["median"] + held, "times": (row["median"] + held) / size}
        )
    return rows


def main(given: Options) -> None:
    """Measure and write."""
    if given.measure:
        what, *arguments = given.measure
        print(json.dumps({"memory": measure_here, "write": write_here}[what](*arguments)))
        return
    sizes, turns = given.sizes(SIZES, QUICK), given.turns()
    rows = [row for n_rows in sizes for row in measure(n_rows, turns)]
    write(__file__, given, Table(COLUMNS, rows))


if __name__ == "__main__":
    main(options(__doc__))
