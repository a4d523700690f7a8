"""Stochastic steps of `csoaa-sgd` beside Vowpal Wabbit's, with the same number of row visits.

The problem of the peers, one client, from ready scores to parameters. "Passes" is visits over rows:
fedopl's rounds draw batches of 128, Vowpal Wabbit goes through all rows in order. Its seconds are
for learning from existing lines of text (Python), or in its own loop from a file (text file, which
parses once and takes later passes from its cache; command line). The time to make the text is given
separately. The program `vw` is not available where the results below were made: the text file,
which the same C++ loop reads without Python, stands for the command line. fedopl's seconds are
those of all rounds, through the door, including standardising. "Ends of rounds" is
`average="rounds"`; without it, all steps are averaged. "Default" are Vowpal Wabbit's adaptive
steps; "sgd" are plain ones of rate 1/√n, close to the best of those tried.
"""

import json
import shutil
import tempfile
import time
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
from problem import Rows, draw, held_out_contexts, regret

SIZES, QUICK = (100_000, 1_000_000), (3_000,)
PASSES = (1, 5)
BATCH, STEPS = 128, 20
COLUMNS = (
    Column("rows", "{rows:,}"),
    Column("passes", "{passes}"),
    Column("method", "{method}", text=True),
    Column("seconds", "{median:~3}"),
    Column("least – most", "{least:~3} – {most:~3}", text=True),
    Column("rows per second", "{rate:,.0f}"),
    Column("times Vowpal Wabbit, Python", "{times:~3}×"),
    Column("regret", "{regret:~2}"),
    Column("making text, s", "{text:~3}"),
)
METHODS = {
    "fedopl, csoaa-sgd": "fedopl steps",
    "fedopl, csoaa-sgd, ends of rounds": "fedopl rounds",
    "Vowpal Wabbit, Python, default": "python default",
    "Vowpal Wabbit, Python, sgd": "python sgd",
    "Vowpal Wabbit, text file, sgd": "file sgd",
    "Vowpal Wabbit, command line, sgd": "command sgd",
}
BASE = "Vowpal Wabbit, Python, sgd"


def with_fedopl(folder: str, passes: int, average: str) -> tuple[float, np.ndarray]:
    """Seconds of all rounds, and what is decided."""
    import fedopl

    data = fedopl.LoggedData(*Rows.load(folder))
    rounds = max(round(passes * data.n_rows / (BATCH * STEPS)), 1)
    plan = fedopl.TrainingPlan(rounds=rounds, local_steps=STEPS, batch_size=BATCH, average=average)
    ends: list[tuple[str, float]] = []
    run = fedopl.learn(
        {"all": data},
        policy=fedopl.Linear(oracle="csoaa-sgd", training=plan),
        nuisances=fedopl.NuisancePlan(kind="local", propensity="marginal"),
        evaluation=fedopl.EvaluationPlan(share=0, describe=False),
        running=fedopl.Running(
            progress=lambda latest: ends.append((latest.query, time.perf_counter()))
        ),
    )
    last = max(end for query, end in ends if query == "ImprovePolicy")
    begun = max(end for query, end in ends if query == "SumScores")
    weights = run.policy.parameters
    contexts = np.load(Path(folder, "test.npy"))
    return last - begun, (contexts @ weights[:, :-1].T + weights[:, -1]).argmax(axis=1)


def measure_here(folder: str, passes: str, average: str) -> Row:
    """All rounds in this process, once on few rows before."""
    with_fedopl(str(Path(folder, "few")), 1, average)
    seconds, decided = with_fedopl(folder, int(passes), average)
    np.save(Path(folder, "decisions.npy"), decided)
    return {"seconds": seconds}


def once(way: str, folder: str, passes: int) -> Row:
    """One method in a process of its own."""
    if way.startswith("command") and shutil.which("vw") is None:
        raise AbsentError("absent: no program vw on the path")
    if way.startswith("fedopl"):
        return in_child(__file__, folder, str(passes), way.split()[1])
    passing, python = str(HERE / "vowpal_passes.py"), peer_python("vowpalwabbit")
    return in_child(passing, way, folder, str(passes), python=python)


def measure(n_rows: int, passes: int, turns: int) -> list[Row]:
    """All methods on the same rows, in turns."""
    runs: dict[str, list[Row]] = {name: [] for name in METHODS}
    found: dict[str, Row] = {
        name: {"rows": n_rows, "passes": passes, "method": name} for name in METHODS
    }
    contexts = held_out_contexts()
    with tempfile.TemporaryDirectory() as folder:
        few = Path(folder, "few")
        few.mkdir()
        for place, rows in ((Path(folder), n_rows), (few, 1_000)):
            draw(rows).save(place)
            np.save(place / "test.npy", contexts if rows == n_rows else contexts[:10])
        for _ in range(turns):
            for name in [name for name in METHODS if "note" not in found[name]]:
                try:
                    runs[name].append(once(METHODS[name], folder, passes))
                except AbsentError as absent:
                    found[name]["note"] = str(absent)
                    continue
                found[name]["regret"] = regret(np.load(Path(folder, "decisions.npy")), contexts)
    for name, done in runs.items():
        if done:
            found[name] |= spread(run["seconds"] for run in done)
            found[name]["rate"] = passes * n_rows / found[name]["median"]
            if "text" in done[0]:
                found[name]["text"] = spread(run["text"] for run in done)["median"]
    if "rate" in found[BASE]:
        for row in found.values():
            if "rate" in row:
                row["times"] = row["rate"] / found[BASE]["rate"]
    return list(found.values())


def main(given: Options) -> None:
    """Measure and write."""
    if given.measure:
        print(json.dumps(measure_here(*given.measure)))
        return
    sizes, turns = given.sizes(SIZES, QUICK), given.turns()
    rows = [
        row
        for n_rows in sizes
        for passes in (PASSES if n_rows < SIZES[-1] else PASSES[:1])
        for row in measure(n_rows, passes, turns)
    ]
    write(__file__, given, Table(COLUMNS, rows), peers=True)


if __name__ == "__main__":
    main(options(__doc__))
