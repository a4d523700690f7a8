"""Seconds and memory to score logged data: fedopl, scikit-learn refitted per fold, bare X.T @ X.

    python benchmarks/scores.py [--write] [--most-rows 1000000]

All three work on the same rows in the same process, in turns, on one BLAS thread; seconds are
medians. Memory is measured in a fresh process for each method. `--write` puts the table into
benchmarks/README.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fedopl.files import write_between

ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
SIZES = {10_000: 7, 100_000: 5, 1_000_000: 5}
N_FEATURES, N_ACTIONS, N_FOLDS = 40, 4, 5


def logged(n_rows: int):
    """The problem every peer is given: linear rewards, uniform logging."""
    import numpy as np

    import fedopl

    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((n_rows, N_FEATURES))
    actions = rng.integers(0, N_ACTIONS, n_rows)
    rewards = rng.standard_normal(n_rows)
    width = N_FEATURES // N_ACTIONS
    for action in range(N_ACTIONS):
        taken = actions == action
        rewards[taken] += contexts[taken, action * width : (action + 1) * width].sum(axis=1)
    return fedopl.LoggedData(contexts, actions, rewards)


def with_fedopl(data, outcome: str):
    """Cross-fit and score by fedopl."""
    import fedopl

    nuisances = fedopl.cross_fit(data, outcome=outcome, propensity="marginal", folds=N_FOLDS)
    return fedopl.aipw_scores(data, nuisances).values


def with_scikit_learn(data, outcome: str):
    """Cross-fit and score as most people would: a fresh scikit-learn fit per fold and action."""
    import numpy as np
    from sklearn.linear_model import LinearRegression, RidgeCV
    from sklearn.model_selection import StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from fedopl.least_squares import PENALTIES

    contexts, actions, rewards = data.contexts, data.actions, data.rewards
    scores = np.empty((data.n_rows, N_ACTIONS))
    folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=0)
    for train, test in folds.split(contexts, actions):
        for action in range(N_ACTIONS):
            rows = train[actions[train] == action]
            if outcome == "ols":
                model = LinearRegression()
            else:
                model = make_pipeline(StandardScaler(), RidgeCV(PENALTIES * len(rows)))
            means = model.fit(contexts[rows], rewards[rows]).predict(contexts[test])
            taken = actions[test] == action
            share = len(rows) / len(train)
            scores[test, action] = means + taken * (rewards[test] - means) / share
    return scores


METHODS: dict[str, Callable] = {
    "fedopl, ridge": lambda data: with_fedopl(data, "ridge"),
    "fedopl, ols": lambda data: with_fedopl(data, "ols"),
    "scikit-learn, ridge": lambda data: with_scikit_learn(data, "ridge"),
    "scikit-learn, ols": lambda data: with_scikit_learn(data, "ols"),
    "X.T @ X": lambda data: data.contexts.T @ data.contexts,
}


def measure_seconds(n_rows: int) -> dict[str, list[float]]:
    """Seconds of each method, in turns over the same rows."""
    data = logged(n_rows)
    seconds: dict[str, list[float]] = {name: [] for name in METHODS}
    for turn in range(SIZES[n_rows] + 1):
        for name, method in METHODS.items():
            start = time.perf_counter()
            method(data)
            if turn:  # the first turn warms up imports and caches
                seconds[name].append(time.perf_counter() - start)
    return seconds


def measure_memory(n_rows: int, name: str) -> dict[str, float]:
    """Bytes of the input, and how far a method's peak lies above it."""
    METHODS[name](logged(100))  # imports are not the method's memory
    data = logged(n_rows)
    size = data.contexts.nbytes + data.actions.nbytes + data.rewards.nbytes
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    METHODS[name](data)
    return {"input": size, "growth": _memory("VmHWM") - before}


def _memory(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"this system does not report {field}")


def in_fresh_process(*arguments: str):
    """Run one measurement of this script in a process of its own, on one thread."""
    command = [sys.executable, __file__, "--measure", *arguments]
    done = subprocess.run(
        command, env={**os.environ, **ONE_THREAD}, check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def rows_of_table(n_rows: int) -> list[str]:
    """The table's rows for one size."""
    seconds = in_fresh_process("seconds", str(n_rows))
    median = {name: statistics.median(values) for name, values in seconds.items()}
    lines = []
    for name in METHODS:
        memory = in_fresh_process("memory", str(n_rows), name)
        peak = (memory["input"] + memory["growth"]) / memory["input"]
        outcome = name.partition(", ")[2]
        baseline = median.get(f"scikit-learn, {outcome}")
        faster = f"{baseline / median[name]:.1f}×" if name.startswith("fedopl") else ""
        spread = f"{min(seconds[name]):.3f} – {max(seconds[name]):.3f}"
        bare = median[name] / median["X.T @ X"]
        cells = [f"{n_rows:,}", name, f"{median[name]:.3f}", spread, faster, f"{bare:.1f}×"]
        lines.append(f"| {' | '.join([*cells, f'{peak:.2f}×'])} |")
    return lines


HEADER = [
    "| rows | method | seconds | least – most | faster than scikit-learn | times X.T @ X | "
    "peak memory / input |",
    "|---:|---|---:|---|---:|---:|---:|",
]


def main() -> None:
    """Measure, print, and write if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="update benchmarks/README.md")
    parser.add_argument("--most-rows", type=int, default=max(SIZES), metavar="N")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        what, n_rows, *name = options.measure
        found = (
            measure_seconds(int(n_rows))
            if what == "seconds"
            else (measure_memory(int(n_rows), *name))
        )
        print(json.dumps(found))
        return
    table = list(HEADER)
    print("\n".join(HEADER))
    for n_rows in (size for size in SIZES if size <= options.most_rows):
        for line in rows_of_table(n_rows):
            print(line, flush=True)
            table.append(line)
    if options.write:
        write_between(Path(__file__).with_name("README.md"), "scores", table)


if __name__ == "__main__":
    main()
