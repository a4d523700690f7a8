"""A client larger than its machine: passes over its rows on disk by one and by two Dask workers.

40 features, 4 actions, 5 folds. One partition, 1,048,576 rows in files, is real. Clients with more
are simulated: the partition is read again for each of theirs, from the start of the file to its
end, sorted and summed anew. So the file is in the system's cache after the first time, and reading
costs less than from a disk. "Own process" is the way without workers: one process, in which two
threads read the next rows. Workers are processes on this machine, of one thread each. "Times one
worker" compares within one run, in turns. "Processor seconds" are those of the workers, or of the
own process; "cores" is that over time: where it is close to the number of workers, the processor
limits them, and where it is far below, other programs used it. "Sent back" is what one partition's
total takes. "Same bits": whether the totals are those of the own process. Two workers of Spark are
measured too where PySpark and Java are installed; their processor time includes Java's.

The second table says how much of `fedopl.learn` on rows on disk are passes that workers take, in
the own process. The rest stays there: rows assigned to folds, the sample that propensities are
fitted to and the fits themselves, descriptions, and solving.
"""

import pickle
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial, reduce
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from harness import Column, Options, Row, Table, options, spread, tell, write
from memory import schema, write_parquet
from problem import N_FEATURES

import fedopl
from fedopl.client.disclosure.private_draws import SEED_ALONE, PrivateDraws
from fedopl.client.disk import passes
from fedopl.client.disk.passes import CHUNKS_PER_PARTITION, Pass
from fedopl.client.local.score_means import ScoreTotals
from fedopl.client.rows import study_rows
from fedopl.client.rows.chunks import ROWS_PER_CHUNK
from fedopl.client.rows.fold_sums import no_sums
from fedopl.client.table.logged_data import LoggedData
from fedopl.client.workspace import Workspace

PARTITION = ROWS_PER_CHUNK * CHUNKS_PER_PARTITION
SIZES = (2 * PARTITION, 96 * PARTITION)
QUICK = (4 * PARTITION,)
QUICK_PARTITION = 8_000
TURNS, MANY = 1, 20 * PARTITION  # larger clients are gone through once, for sums, by both workers
READING = """
A partition takes the same processor time by one worker and by two, and totals have the same bits as
those of the own process. Two workers on two cores take sums in 0.61 of the time of one, and scores
in 0.71: with two partitions each worker has one, and the client's process, which hands them out and
adds up, shares the cores. With 96 partitions, a hundred million rows, workers were busy for 1.8
cores of 2, and took 2.4 million rows a second. What limits them there is the processor. Most of a
run of `fedopl.learn` with 262,144 rows stays in the client's process.
"""
COLUMNS = (
    Column("rows", "{rows:,}"),
    Column("pass", "{what}", text=True),
    Column("by", "{who}", text=True),
    Column("seconds", "{median:~3}"),
    Column("least – most", "{least:~3} – {most:~3}", text=True),
    Column("million rows a second", "{rate:~3}"),
    Column("times one worker", "{times:.2f}×"),
    Column("processor seconds", "{cpu:~3}"),
    Column("cores", "{cores:.2f}"),
    Column("sent back", "{kb:,.0f} KB"),
    Column("same bits", "{same}", text=True),
)
SHARES = (
    Column("rows", "{rows:,}"),
    Column("propensities", "{propensity}", text=True),
    Column("processor seconds", "{seconds:~3}"),
    Column("in passes that workers take", "{share:.0%}"),
)

Engine = fedopl.DaskEngine | fedopl.SparkEngine | None
Totalled = Callable[[Workspace, int], list[Any]]


def repeated(found: Pass[Any], times: int) -> Pass[Any]:
    """The same rows over and over."""
    return replace(found, chunks=[*found.chunks] * times)


def outcome_sums(space: Workspace, times: int) -> list[Any]:
    """Sums of squares for each fold and action: the heaviest of all passes."""
    chunks = space.study_rows.chunks_in_terms()
    first = next(iter(chunks))
    total = partial(study_rows._summed, no_sums(first.data, first.folds))
    return [sums.sums for sums in repeated(chunks, times).totals(total)]


def score_sums(space: Workspace, times: int) -> list[Any]:
    """Scores of all rows by cross-fitted models, and sums of products with them."""
    nobody = np.zeros(space.study.n_actions, np.bool_)
    chunks = space._own_scorer(nobody, nobody).scored(space.unscored_chunks())
    new = partial(ScoreTotals, space.study.n_actions, N_FEATURES, None, complete=True)
    return list(repeated(chunks, times).totals(partial(_scored_sums, new)))


def _scored_sums(new: Callable[[], ScoreTotals], chunks: Iterable[Any]) -> Any:
    totals = new()
    for chunk in chunks:
        totals.add_without_squares(chunk.data, chunk.scores, chunk.training)
    return totals._products


PASSES: dict[str, Totalled] = {"outcome sums": outcome_sums, "scores and their sums": score_sums}


def opened(folder: Path, n_rows: int, engine: Engine) -> LoggedData:
    """The rows on disk, read from the file at first."""
    path = folder / f"{n_rows}.parquet"
    if not path.exists():
        write_parquet(path, n_rows)
    return fedopl.read_logged(path, schema(), on_disk=folder / "rows", engine=engine)


def workspace(data: LoggedData) -> Workspace:
    """What passes are made from, with all that they need computed before."""
    study = fedopl.Study(
        actions=data.action_names,
        features=data.feature_names,
        nuisances=fedopl.NuisancePlan(propensity="marginal"),
    )
    limits = fedopl.Limits(minimum_cell=0)
    return Workspace(data, study, limits, PrivateDraws(0, "", SEED_ALONE))


def busy(engine: Engine) -> float:
    """Processor time so far, of the workers or of this process."""
    if engine is None:
        return time.process_time()
    if isinstance(engine, fedopl.SparkEngine):
        java = psutil.Process(engine._opened.session.sparkContext._gateway.proc.pid)
        times = [process.cpu_times() for process in (java, *java.children(recursive=True))]
        return sum(own.user + own.system for own in times)
    return sum(engine._client.run(time.process_time).values())


def measured(
    space: Workspace, what: Totalled, times: int, engine: Engine
) -> tuple[float, float, list[Any]]:
    """Seconds, processor time, and what came of it."""
    cpu, clock = busy(engine), time.perf_counter()
    found = what(space, times)
    return time.perf_counter() - clock, busy(engine) - cpu, found


def measure(folder: Path, rows: int, n_rows: int, ways: dict[str, Any], turns: int) -> list[Row]:
    """All passes by all ways, in turns; `n_rows` of them are real."""
    spaces = {name: workspace(opened(folder, n_rows, engine)) for name, engine in ways.items()}
    times, lines = rows // PARTITION, []
    for what, totalled in PASSES.items() if rows <= MANY else [("outcome sums", outcome_sums)]:
        runs: dict[str, list[Any]] = {name: [] for name in ways}
        for _ in range(turns):
            for name, engine in ways.items():
                tell(__file__, f"{rows:,}", what, name)
                runs[name].append(measured(spaces[name], totalled, times, engine))
        bits = {name: pickled(own[-1][2]) for name, own in runs.items()}
        one = np.median([run[0] for run in runs.get("one worker", [])] or [np.nan])
        for name, own in runs.items():
            line = {"rows": times * n_rows, "what": what, "who": name}
            line |= spread(run[0] for run in own)
            line["rate"] = times * n_rows / line["median"] / 1e6
            line["cpu"] = float(np.median([run[1] for run in own]))
            line["cores"] = sum(run[1] for run in own) / sum(run[0] for run in own)
            line["kb"] = len(pickle.dumps(own[-1][2][0])) / 1e3
            if len(ways) > 1:
                line["times"] = float(one / line["median"])
                line["same"] = "yes" if bits[name] == bits["own process"] else "NO"
            lines.append(line)
    return lines


def pickled(totals: list[Any]) -> bytes:
    """All totals, added up in order."""
    return reduce(np.add, totals).tobytes()


def shares(folder: Path, n_rows: int) -> list[Row]:
    """How much of learning is in passes that workers take."""
    data, lines = opened(folder, n_rows, None), []
    for propensity in ("marginal", "auto"):
        tell(__file__, "shares", propensity)
        spent, totals = [0.0], Pass.totals

        def timed(self: Pass[Any], total: Any, totals: Any = totals, spent: Any = spent) -> Any:
            begun = time.process_time()
            found = list(totals(self, total))
            spent[0] += time.process_time() - begun
            return iter(found)

        Pass.totals = timed  # type: ignore[method-assign]
        begun = time.process_time()
        plan = fedopl.NuisancePlan(propensity=propensity)
        fedopl.learn({"all": data}, basis="linear", nuisances=plan)
        seconds = time.process_time() - begun
        Pass.totals = totals  # type: ignore[method-assign]
        share = spent[0] / seconds
        lines.append({"rows": n_rows, "propensity": propensity, "seconds": seconds, "share": share})
    return lines


def main(given: Options) -> None:
    """Measure and write."""
    n_rows = QUICK_PARTITION if given.quick else PARTITION
    if given.quick:
        study_rows.ROWS_PER_CHUNK = 1_000
        passes.CHUNKS_PER_PARTITION = 8
    one, two = fedopl.DaskEngine(workers=1), fedopl.DaskEngine(workers=2)
    ways: dict[str, Engine] = {"own process": None, "one worker": one, "two workers": two}
    spark = None
    if find_spec("pyspark") and shutil.which("java"):
        spark = ways["two workers of Spark"] = fedopl.SparkEngine(workers=2)
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for rows in given.sizes(SIZES, QUICK):
            few = rows <= MANY
            own = ways if few else {"two workers": two}
            turns = given.turns(TURNS if few else 1)
            lines += measure(Path(folder), rows, n_rows, own, turns)
        parts = shares(Path(folder), n_rows // 4)
    one.close()
    two.close()
    if spark:
        spark.close()
    write(__file__, given, Table(COLUMNS, lines), Table(SHARES, parts))


if __name__ == "__main__":
    main(options(__doc__))
