"""Regret of policies in fourteen worlds, for fedopl's ways to learn and for peers with pooled rows.

The worlds are those of `fedopl.simulation.named_worlds`: three clients (five or ten where it says
so), three actions, five numbers and one feature of 0 or 1, contexts that differ between clients,
noise of variance 1, and confounded logging that is not logistic in x. Rewards are linear, smooth,
steps, XOR of two thresholds, or products of three ("deep"); or they are linear and one thing is
wrong. Every draw has slopes and thresholds of its own. Regret is the loss of a policy against the
best policy that sees the same features, on 60,000 fresh contexts with their true means. So if
clients differ, no method is penalised for not knowing which client a context belongs to. "±" is the
standard error over draws; "beyond fedopl's" is the difference to the default on the same draws,
with its own error. "Times the best" compares means with that of the best method in the same world
at the same size.

"fedopl" is `fedopl.learn(clients, evaluation=0)`; like the peers, it learns from all rows and
claims no value. "A quarter held out" is the call with `evaluation=0.25`. "Linear" has linear models
of outcomes, logistic ones of logging and unchanged weights, whatever the defaults are. Peers have
all rows in one table, and no method is given propensities. The T-learner is scikit-learn's
histogram boosting for each action, with trees of four leaves and early stopping. Of seven settings,
tried in three of these worlds at two sizes, this one was the best in five cells of six, on draws
that are also measured here; if three features act together, 31 leaves are better. econml,
policytree and obp get boosted models of four leaves, and propensities of 0.05 at least. policytree
searches trees of depth two, with about 600 thresholds a column (`split.step`; all if there are no
more rows). Seconds are the processor's, from arrays to the policy, on one thread, the median over
draws.

`--worlds`, `--sizes` (rows a client), `--methods` and `--draws` choose; all of it takes hours.
`--again` measures some methods anew, or for the first time, on the same draws, and leaves the
others as they were. A peer that is not installed is reported absent: `make peers` installs those of
Python. policytree is an R package; its sources build with Rcpp and BH alone (Debian's r-cran-rcpp
and r-cran-bh) once grf is taken out of Imports, which trees do not use: `R CMD INSTALL`.
"""

import math
import statistics
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
    kept_rows,
    peer_python,
    tell,
    write,
)
from policy_methods import METHODS, run
from threadpoolctl import threadpool_limits
from world_cells import Asked, asked_for, told

from fedopl.simulation.named_worlds import SHAPED_WORLDS, shaped_world
from fedopl.simulation.shaped_worlds import ShapedWorld

FULL = Asked(tuple(SHAPED_WORLDS), (500, 2_000, 4_000), tuple(METHODS), draws=6)
QUICK = Asked(
    ("few-rows",), (100,), ("fedopl", "fedopl, linear", "econml, DRPolicyForest"), draws=2
)
N_TEST = 60_000  # contexts, over all clients
RUNS = str(HERE / "policy_methods.py")
DEFAULT, LINEAR = "fedopl", "fedopl, linear"
READING = """
With four draws of 2,000 rows a client, or as many as a world has, the default is the best of all in
eight worlds of fourteen, and within a fifth of the best in all others but `poor-overlap`, where it
loses 1.4 times as much as the best, a difference no larger than errors. With 500 rows a client it
was measured beside "linear" and the T-learner alone: in no world is it worse than linear, and it is
the best of the three in ten of twelve. The T-learner is better in `steps`, where thresholds are
found later, and hardly better in `deep`. fedopl and the T-learner were measured last, on the same
draws as the others, on x86-64; seconds are not those of the others' machine.
"""
COLUMNS = (
    Column("world", "{world}", text=True),
    Column("rows", "{clients} × {rows:,}"),
    Column("method", "{method}", text=True),
    Column("regret", "{regret:~3}"),
    Column("±", "{error:~2}"),
    Column("times the best", "{times:~3}×"),
    Column("beyond fedopl's", "{beyond:+.4f} ± {beyond_error:.4f}"),
    Column("CPU seconds", "{seconds:~2}"),
)
SUMMARY = (
    Column("rows a client", "{rows:,}"),
    Column("method", "{method}", text=True),
    Column("worlds", "{worlds}"),
    Column("times the best, geometric mean", "{best:~3}×"),
    Column("at worst", "{best_worst:~3}× ({best_where})", text=True),
    Column("times linear's, geometric mean", "{linear:~3}×"),
    Column("at worst", "{linear_worst:~3}× ({linear_where})", text=True),
)


def keep(folder: Path, draw: int, world: ShapedWorld, n_rows: int) -> np.ndarray:
    """Write one draw's rows and fresh contexts to a file; what each action loses there."""
    logged = world.all_logged(n_rows)
    asked, lost = world.losses(N_TEST // len(logged))
    np.savez(
        folder / f"{draw:04}.npz",
        contexts=np.concatenate([data.contexts for data in logged.values()]),
        actions=np.concatenate([data.actions for data in logged.values()]),
        rewards=np.concatenate([data.rewards for data in logged.values()]),
        clients=np.repeat(np.arange(len(logged)), [data.n_rows for data in logged.values()]),
        n_actions=world.n_actions,
        asked=asked,
    )
    return lost


def once(name: str, folder: Path, lost: list[np.ndarray]) -> Row:
    """One method on every draw: its regrets and seconds."""
    peer = METHODS[name][0]
    if peer:
        seconds = in_child(RUNS, name, str(folder), python=peer_python(peer))
    else:
        with threadpool_limits(1):
            seconds = run(name, folder)
    decided = [np.load(path) for path in sorted(folder.glob("*.decisions.npy"))]
    regrets = [
        float(less[np.arange(len(less)), codes].mean())
        for less, codes in zip(lost, decided, strict=True)
    ]
    return {"regrets": regrets, "seconds": statistics.median(seconds)}


def measure(name: str, n_rows: int, methods: tuple[str, ...], draws: int) -> list[Row]:
    """All methods on the same draws of one world."""
    first = shaped_world(name)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        lost = [keep(folder, draw, shaped_world(name, draw), n_rows) for draw in range(draws)]
        for method in methods:
            row = {"world": name, "clients": len(first.clients), "method": method}
            row |= {"rows": first.rows or n_rows}
            try:
                row |= once(method, folder, lost)
            except AbsentError as absent:
                row["note"] = str(absent)
            tell(__file__, name, row["rows"], method, row.get("regrets", "absent"))
            rows.append(row)
    return compared(rows)


def compared(rows: list[Row]) -> list[Row]:
    """The same with means, errors, and what they are beside the best, linear and the default."""
    found = {row["method"]: row for row in rows if "regrets" in row}
    for row in found.values():
        row |= mean_and_error(row["regrets"], "regret", "error")
    means = {method: row["regret"] for method, row in found.items()}
    for method, row in found.items():
        # Who loses nothing is no measure for others.
        if min(means.values()) > 0:
            row["times"] = means[method] / min(means.values())
        if means.get(LINEAR, 0) > 0:
            row["times_linear"] = means[method] / means[LINEAR]
        if DEFAULT in found and method != DEFAULT:
            beyond = np.subtract(row["regrets"], found[DEFAULT]["regrets"])
            row |= mean_and_error(beyond.tolist(), "beyond", "beyond_error")
    return rows


def mean_and_error(values: list[float], mean: str, error: str) -> Row:
    """The mean over draws and, where there are several, its standard error, by these names."""
    found = {mean: statistics.mean(values)}
    if len(values) > 1:
        found[error] = statistics.stdev(values) / math.sqrt(len(values))
    return found


def summed_up(rows: list[Row]) -> list[Row]:
    """By size and method: how far from the best and from linear, over all worlds of that size."""
    groups: dict[tuple[int, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["rows"]):
        groups.setdefault((row["rows"], row["method"]), []).append(row)
    return [
        {"rows": size, "method": method, "worlds": len(own)}
        | _ratios(own, "times", "best")
        | _ratios(own, "times_linear", "linear")
        for (size, method), own in groups.items()
    ]


def _ratios(rows: list[Row], name: str, against: str) -> Row:
    """The mean and the largest of a ratio that rows have by this name."""
    times = {row["world"]: row[name] for row in rows if row.get(name, 0) > 0}
    if not times:
        return {}
    where = max(times, key=lambda world: times[world])
    return {
        against: statistics.geometric_mean(times.values()),
        f"{against}_worst": times[where],
        f"{against}_where": where,
    }


def beside_kept(rows: list[Row], kept: list[Row]) -> list[Row]:
    """All that was kept, with these measured anew; draws of a world are the same every time.

    A method that was not there before comes last in its worlds.
    """
    cells: dict[tuple[str, int], dict[str, Row]] = {}
    for row in [*kept, *rows]:
        cells.setdefault((row["world"], row["rows"]), {})[row["method"]] = row
    return [row for cell in cells.values() for row in compared([*cell.values()])]


def main(given: Options) -> None:
    """Measure and write."""
    asked = asked_for(given, QUICK if given.quick else FULL)
    again = given.chosen["again"]
    methods = again or asked.methods
    rows = [row for cell in asked.cells for row in measure(*cell, methods, asked.draws)]
    if again:
        rows = beside_kept(rows, kept_rows(__file__, given, table=1))
    summary = summed_up(rows)
    write(__file__, given, Table(SUMMARY, summary), Table(COLUMNS, rows), peers=True)


if __name__ == "__main__":
    main(told(__doc__, tuple(METHODS), again=tuple(METHODS)))
