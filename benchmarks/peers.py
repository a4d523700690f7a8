"""Seconds, memory and regret from arrays to a policy, for fedopl and other libraries.

The problem: 4 actions, 40 features, X ~ N(0, I), A uniform, Y = x_aᵀθ_a + N(0, 1), where x_a is a
quarter of x that the learners do not know ("blocks" does); regret is the true one, on 100,000 other
rows. Each method runs in a process of its own, on one thread, once on 1,000 rows so that everything
is imported, then on all rows. The clock runs from arrays to the policy. "fedopl" does what the
others do: cross-fit with marginal propensities, and solve. "Evaluated" also values the policy on a
quarter of the rows, which it does not learn from. "Defaults" is `fedopl.learn(clients)` without
options, which also chooses propensities and describes decisions.

Each peer is configured as well as we know how. scikit-learn refits least squares for every fold and
action. Vowpal Wabbit gets scores from plain numpy and takes plain steps of rate 1/√n in one pass,
close to the best of those tried (the regret of its default, adaptive steps is larger). "Text file"
is its own C++ loop over a file, as its command line does, which needs the program `vw`.
contextualbandits gets out-of-fold reward estimates, since its own are for rewards of 0 and 1. obp
gets rewards above zero, as it demands. econml gets an outcome model with slopes for each action,
since by default nothing interacts with the action.
"""

import tempfile
from pathlib import Path

import numpy as np
from harness import (
    HERE,
    AbsentError,
    Column,
    Options,
    Row,
    Table,
    in_child,
    options,
    peer_python,
    spread,
    write,
)
from peer_methods import METHODS
from problem import draw, held_out_contexts, regret

SIZES = (10_000, 100_000, 1_000_000)
QUICK = (2_000,)
RUNS = str(HERE / "peer_methods.py")
OURS, BARE = "fedopl", "X.T @ X"
COLUMNS = (
    Column("rows", "{rows:,}"),
    Column("method", "{method}", text=True),
    Column("seconds", "{median:~3}"),
    Column("least – most", "{least:~3} – {most:~3}", text=True),
    Column("CPU seconds", "{cpu_median:~3}"),
    Column("times fedopl's", "{times:~3}×"),
    Column("times X.T @ X", "{bare:~3}×"),
    Column("regret", "{regret:~2}"),
    Column("memory added", "{memory_mb:~3} MB"),
)


def once(name: str, folder: str) -> Row:
    """One run of one method, in its own environment."""
    peer = METHODS[name][0]
    return in_child(RUNS, name, folder, python=peer_python(peer) if peer else "")


def measure(n_rows: int, turns: int) -> list[Row]:
    """All methods on the same rows, in turns."""
    runs: dict[str, list[Row]] = {name: [] for name in METHODS}
    found: dict[str, Row] = {name: {"rows": n_rows, "method": name} for name in METHODS}
    contexts = held_out_contexts()
    with tempfile.TemporaryDirectory() as folder:
        draw(n_rows).save(folder)
        np.save(Path(folder, "test.npy"), contexts)
        for _ in range(turns):
            for name in [name for name in METHODS if "note" not in found[name]]:
                try:
                    runs[name].append(once(name, folder))
                except AbsentError as absent:
                    found[name]["note"] = str(absent)
                    continue
                if name != BARE:
                    decided = np.load(Path(folder, "decisions.npy"))
                    found[name]["regret"] = regret(decided, contexts)
    for name, done in runs.items():
        if done:
            found[name] |= spread(run["seconds"] for run in done)
            found[name] |= spread((run["cpu"] for run in done), "cpu_")
            found[name]["memory_mb"] = max(run["growth"] for run in done) / 2**20
    for row in found.values():
        if "median" in row:
            row["times"] = row["median"] / found[OURS]["median"]
            row["bare"] = row["median"] / found[BARE]["median"]
    return list(found.values())


def main(given: Options) -> None:
    """Measure and write."""
    sizes, turns = given.sizes(SIZES, QUICK), given.turns()
    rows = [row for n_rows in sizes for row in measure(n_rows, turns)]
    write(__file__, given, Table(COLUMNS, rows), peers=True)


if __name__ == "__main__":
    main(options(__doc__))
