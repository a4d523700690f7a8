"""Where the time goes from rows to a policy and its value, in multiples of one bare X.T @ X.

The problem of the peers, one client, cross-fitted with marginal propensities, solved, and valued on
a quarter of the rows: "fedopl, evaluated" there. Functions that pass over rows are timed from
within, each without the others that it calls. "All else" is messages, limits, ledgers, the server,
and everything that is not listed. The clock is the processor's, on one thread.
"""

import json
import time
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from statistics import median
from typing import Any

from harness import Column, Options, Row, Table, in_child, options, spread, write
from problem import draw

SIZES, QUICK = (100_000, 1_000_000), (4_000,)
BARE, ALL, ELSE = "X.T @ X", "all of it", "all else"
# By stage, the functions that do it, where they are called.
STAGES: dict[str, list[tuple[str, str]]] = {
    "checking the arrays": [("table.logged_data", "LoggedData.__init__")],
    "a hash of every context": [("rows.folds", "row_keys")],
    "dealing rows to folds": [("rows.split_rule", "assign_folds_and_hold_out")],
    "putting rows in order": [
        ("rows.study_rows", "sorted_order"),
        ("rows.chunks", "LoggedData.taken"),
    ],
    "sums of squares for each fold and action": [("rows.study_rows", "fold_sums")],
    "models from them": [("scoring.outcome", "linear_outcomes")],
    "predictions": [("scoring.outcome", "predict")],
    "scores": [("scoring.scoring_pass", "aipw_scores")],
    "sums of scores": [("workspace", "means_of"), ("local.local_policy", "means_of")],
    "the value on held-out rows": [("answers.valuing.estimate_values", "estimate")],
}
READING = """
The table is of an ARM processor. On x86-64 (Xeon, 2.5 GHz, AVX-512) the same command gave 14× for
all of it with a million rows, in 1.6 seconds: putting rows in order 3.9×, values 2.1×, hashes 1.7×,
sums of squares for each fold and action 1.4×. X.T @ X is there as fast as memory can be read, so
that a copy of the rows costs as much, while on ARM it takes one and a half times as long.
"""
COLUMNS = (
    Column("rows", "{rows:,}"),
    Column("stage", "{stage}", text=True),
    Column("CPU seconds", "{median:~3}"),
    Column("least – most", "{least:~3} – {most:~3}", text=True),
    Column("times X.T @ X", "{bare:.2f}×"),
)


class Stopwatch:
    """Seconds by stage; while an inner one runs, the outer one stands still."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin anew."""
        self.seconds: dict[str, float] = defaultdict(float)
        self._running = [ELSE]
        self._since = time.process_time()

    def switch(self) -> None:
        """Count for whoever runs."""
        now = time.process_time()
        self.seconds[self._running[-1]] += now - self._since
        self._since = now

    def timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which counts for its stage."""

        @wraps(function)
        def run(*given: Any, **named: Any) -> Any:
            self.switch()
            self._running.append(stage)
            try:
                return function(*given, **named)
            finally:
                self.switch()
                self._running.pop()

        return run


def watch(stopwatch: Stopwatch) -> None:
    """Put every stage under the watch."""
    for stage, functions in STAGES.items():
        for module, path in functions:
            *owner, name = path.split(".")
            place: Any = import_module(f"fedopl.client.{module}")
            for part in owner:
                place = getattr(place, part)
            setattr(place, name, stopwatch.timed(stage, getattr(place, name)))


def measure_here(n_rows: str) -> Row:
    """In a process of its own: seconds by stage."""
    from peer_methods import fedopl_evaluated

    rows = draw(int(n_rows))
    fedopl_evaluated(draw(1_000))
    _ = rows.contexts.T @ rows.contexts  # once to warm up
    before = time.process_time()
    _ = rows.contexts.T @ rows.contexts
    bare = time.process_time() - before
    stopwatch = Stopwatch()
    watch(stopwatch)
    stopwatch.start()
    fedopl_evaluated(rows)
    stopwatch.switch()
    return {BARE: bare, ALL: sum(stopwatch.seconds.values()), **stopwatch.seconds}


def measure(n_rows: int, turns: int) -> list[Row]:
    """All stages, in so many processes."""
    runs = [in_child(__file__, str(n_rows)) for _ in range(turns)]
    bare = median(run[BARE] for run in runs)
    rows = []
    for stage in (BARE, *STAGES, ELSE, ALL):
        row = {"rows": n_rows, "stage": stage, **spread(run[stage] for run in runs)}
        rows.append(row | {"bare": row["median"] / bare})
    return rows


def main(given: Options) -> None:
    """Measure and write."""
    if given.measure:
        print(json.dumps(measure_here(*given.measure)))
        return
    rows = [row for n in given.sizes(SIZES, QUICK) for row in measure(n, given.turns())]
    write(__file__, given, Table(COLUMNS, rows))


if __name__ == "__main__":
    main(options(__doc__))
