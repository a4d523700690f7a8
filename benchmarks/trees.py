"""Trees of depth two from ready scores: fedopl beside econml, pystreed and policytree.

    python benchmarks/trees.py [--write] [--quick]

All get the same rows. Peers run in processes of their own, by the interpreter that PEERS_PYTHON
names; those that are not installed are reported absent. Seconds are CPU seconds of all threads, for
fedopl from rows and scores to the tree, for peers of their fit. What takes less than three is taken
five times, in turns. `--quick` keeps to the two smaller sizes; `--write` puts the tables into
benchmarks/README.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from ctypes import CDLL
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tree_peers import Fitted, econml_tree, policytree, streed_tree

import fedopl
from fedopl.files import write_between

SIZES = ((1_000, 30, 3), (10_000, 10, 3), (100_000, 20, 4), (1_000_000, 20, 4))
QUICK = SIZES[:2]
LARGEST = SIZES[-1]
BINS = (32, 64)
OURS = "fedopl, 64 bins"
REFINED = "fedopl, 64 bins, refined"
EXACT = "fedopl, observed thresholds"
TURNS, DRAWS = 5, 20
LONG = 3.0  # CPU seconds from which on a search is run once

Method = Callable[[np.ndarray, np.ndarray], Fitted | None]


class Problem(NamedTuple):
    """The rows that every search is given, and what the noise in their scores hides."""

    contexts: np.ndarray  # (n_rows, n_features)
    scores: np.ndarray  # (n_rows, n_actions)
    means: np.ndarray  # (n_rows, n_actions)

    def earned(self, worth: np.ndarray, decisions: np.ndarray) -> float:
        """The sum over all rows of what was decided."""
        return float(worth[np.arange(len(worth)), decisions].sum())


def problem(n_rows: int, n_features: int, n_actions: int, seed: int = 0) -> Problem:
    """Action 1 is right where two features lie on the same side of their thresholds.

    A stump sees next to nothing of that, and each action beyond lures the first split to a feature
    of its own. Thresholds are drawn too, so that no grid is lucky by design.
    """
    rng = np.random.default_rng(seed)
    cuts = rng.normal([0.0, 0.0, 0.5, 1.0], 0.2)
    contexts = rng.standard_normal((n_rows, n_features))
    beyond = contexts[:, :4] > cuts
    means = np.column_stack(
        [
            np.zeros(n_rows),
            np.where(beyond[:, 0] == beyond[:, 1], 1.0, -1.0),
            np.where(beyond[:, 2], 0.5, -0.5),
            np.where(beyond[:, 3], 0.8, -0.4),
        ]
    )[:, :n_actions]
    return Problem(contexts, means + rng.standard_normal(means.shape), means)


# --- searches -------------------------------------------------------------------------------------


def with_fedopl(
    contexts: np.ndarray, scores: np.ndarray, *, refine: bool = False, **options: object
) -> Fitted:
    """Everything from rows and scores to the tree: quantiles, bins, sums, search."""
    plan = fedopl.TreePlan(depth=2, **options)
    start = time.process_time()
    tree = fedopl.search_tree(contexts, scores, plan, refine=refine)
    seconds = time.process_time() - start
    return Fitted(tree.decide(contexts), seconds)


def on_grid(bins: int, *, refine: bool = False) -> Method:
    """Our search on a grid of quantiles; refined, with a second look close to what was found."""
    return lambda contexts, scores: with_fedopl(contexts, scores, refine=refine, bins=bins)


def on_observed(contexts: np.ndarray, scores: np.ndarray) -> Fitted:
    """Our search over every observed threshold."""
    return with_fedopl(contexts, scores, thresholds="observed")


def on_streed(bins: int) -> Method:
    """The search of pystreed on quantile thresholds."""
    return lambda contexts, scores: streed_tree(contexts, scores, bins)


def searches(n_rows: int) -> dict[str, Method | str]:
    """By name, in the table's order: how to search among so many rows, or why that is not done."""
    small, medium = n_rows <= 10_000, n_rows <= 100_000
    ours: dict[str, Method | str] = {f"fedopl, {bins} bins": on_grid(bins) for bins in BINS}
    ours[REFINED] = on_grid(64, refine=True)
    ours[EXACT] = on_observed if medium else "left out: takes too long"
    ours["econml, greedy"] = econml_tree
    # It holds a bit for every row and threshold, many times over: 13 GB on 50 bins at 100,000 rows.
    for bins in (50, 100) if small else (16, 32):
        ours[f"pystreed, {bins} bins"] = on_streed(bins) if medium else "left out: memory"
    ours["policytree, exact"] = policytree if small else "left out: takes too long"
    return ours


class Measured(NamedTuple):
    """What one search reached, and how long it took each time."""

    value: float
    mean: float  # by the means, without noise
    seconds: list[float]


def measure(size: tuple[int, int, int]) -> dict[str, Measured | str]:
    """Every search on the same rows, in turns; a text says why there is no measurement."""
    given = problem(*size)
    found: dict[str, Measured | str] = {}
    remaining = searches(size[0])
    for _ in range(TURNS):
        for name, search in list(remaining.items()):
            fitted = search if isinstance(search, str) else search(given.contexts, given.scores)
            if not isinstance(fitted, Fitted):
                found[name] = fitted or "absent"
            elif name in found:
                found[name].seconds.append(fitted.seconds)
            else:
                worths = (given.scores, given.means)
                earned = [given.earned(worth, fitted.decisions) for worth in worths]
                found[name] = Measured(*earned, [fitted.seconds])
            if not isinstance(fitted, Fitted) or fitted.seconds > LONG:
                del remaining[name]
    return {name: found[name] for name in searches(size[0])}


# --- the tables -----------------------------------------------------------------------------------

HEADER = [
    "| rows × features × actions | search | value | of the exact one | without noise | CPU seconds "
    "| least – most | times fedopl's, 64 bins |",
    "|---|---|---:|---:|---:|---:|---|---:|",
]


def rows_of_table(size: tuple[int, int, int]) -> list[str]:
    """The table's rows for one size."""
    found = measure(size)
    exact, ours = found[EXACT], statistics.median(found[OURS].seconds)
    lines = []
    for name, one in found.items():
        cells = [" × ".join(f"{length:,}" for length in size), name]
        if isinstance(one, str):
            lines.append(f"| {' | '.join([*cells, one, *[''] * 5])} |")
            continue
        median = statistics.median(one.seconds)
        share = f"{100 * one.value / exact.value:.2f} %" if isinstance(exact, Measured) else ""
        repeated = len(one.seconds) > 1
        spread = f"{min(one.seconds):.3f} – {max(one.seconds):.3f}" if repeated else "once"
        cells += [f"{one.value:,.1f}", share, f"{one.mean:,.1f}", f"{median:.3f}", spread]
        lines.append(f"| {' | '.join([*cells, _times(median / ours)])} |")
    return lines


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}×" if ratio >= 100 else f"{ratio:.3g}×"


def grid_lines() -> list[str]:
    """What a grid gives away, over draws of the problem with thresholds anywhere."""
    n_rows, n_features, n_actions = QUICK[-1]
    shares: dict[tuple[int, bool], list[float]] = {
        (bins, refine): [] for refine in (False, True) for bins in BINS
    }
    for seed in range(DRAWS):
        given = problem(n_rows, n_features, n_actions, seed)
        rows = given.contexts, given.scores
        exact = given.earned(given.scores, on_observed(*rows).decisions)
        for (bins, refine), found in shares.items():
            reached = given.earned(given.scores, on_grid(bins, refine=refine)(*rows).decisions)
            found.append(100 * reached / exact)
    size = " × ".join(f"{length:,}" for length in QUICK[-1])
    return [
        f"| share of the exact value at {size}, {bins} bins{', refined' * refine}, {DRAWS} draws: "
        f"median, least – most | {statistics.median(found):.2f} %, {min(found):.2f} – "
        f"{max(found):.2f} % |"
        for (bins, refine), found in shares.items()
    ]


def seconds_to_compile() -> list[str]:
    """CPU seconds of a process's first search over observed thresholds, by what is on the disk."""
    with tempfile.TemporaryDirectory() as cache:
        cold, cached = (in_fresh_process("first", NUMBA_CACHE_DIR=cache) for _ in range(2))
    return [
        f"| first search over observed thresholds, nothing compiled yet | {cold:.1f} CPU s |",
        f"| the same in the next process, compiled code on disk | {cached:.1f} CPU s |",
    ]


def memory_line(bins: int) -> str:
    """How much memory our search adds at its peak, over the rows' bins at a byte each."""
    growth = in_fresh_process("memory", str(bins))
    times = growth / (LARGEST[0] * LARGEST[1])
    size = " × ".join(f"{length:,}" for length in LARGEST)
    name = f"peak memory added at {size}, {bins} bins"
    return f"| {name} | {growth / 2**20:.0f} MB, {times:.2f} × the binned rows |"


def message_line(bins: int, columns: tuple[str, ...]) -> str:
    """The bytes of one client's sums over cells: the problem's rows, held by three clients."""
    contexts, scores, _ = problem(*QUICK[-1])
    actions = np.random.default_rng(1).integers(0, scores.shape[1], len(scores))
    rewards = scores[np.arange(len(scores)), actions]
    known = np.full(scores.shape, 1 / scores.shape[1])
    clients = {
        f"client {first}": fedopl.LoggedData(*(part[first::3] for part in rows))
        for rows in [(contexts, actions, rewards, known)]
        for first in range(3)
    }
    run = fedopl.learn(
        clients,
        policy="tree",
        tree=fedopl.TreePlan(bins=bins, columns=columns),
        nuisances=fedopl.NuisancePlan(kind="local", propensity="known"),
        evaluation_share=0,
    )
    (sizes,) = [latest.received for latest in run.rounds if latest.query == "SumCells"]
    asked = f"{len(columns)} of {contexts.shape[1]}" if columns else f"all {contexts.shape[1]}"
    each = max(sizes.values()) / 1024
    name = f"a client's CellSums, {scores.shape[1]} actions, {asked} columns, {bins} bins"
    return f"| {name} | {each:,.0f} KB |"


def other_lines(quick: bool) -> list[str]:
    """What is not told by size."""
    return [
        "| what else | measured |",
        "|---|---:|",
        *grid_lines(),
        *seconds_to_compile(),
        *([] if quick else [memory_line(bins) for bins in BINS]),
        *(message_line(bins, names) for names in ((), ("x0", "x1", "x2")) for bins in BINS),
    ]


# --- in processes of their own --------------------------------------------------------------------


def in_fresh_process(*arguments: str, **environment: str) -> float:
    """Run one measurement of this script in a process of its own."""
    command = [sys.executable, __file__, "--measure", *arguments]
    done = subprocess.run(
        command, env={**os.environ, **environment}, check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def measure_first() -> float:
    """CPU seconds of a first search, on a few rows."""
    given = problem(100, 5, 3)
    return on_observed(given.contexts, given.scores).seconds


def measure_memory(bins: str) -> int:
    """How far the peak of a search lies above the memory that its input takes."""
    search = on_grid(int(bins))
    search(*problem(100, *LARGEST[1:])[:2])  # imports are not the search's memory
    contexts, scores, _ = problem(*LARGEST)
    CDLL(None).malloc_trim(0)  # what is left over from making the rows would hide growth
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    fedopl.search_tree(contexts, scores, fedopl.TreePlan(depth=2, bins=int(bins)))
    return _memory("VmHWM") - before


def _memory(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"this system does not report {field}")


MEASUREMENTS = {"first": measure_first, "memory": measure_memory}


def main() -> None:
    """Measure, print, and write if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="update benchmarks/README.md")
    parser.add_argument("--quick", action="store_true", help="the two smaller sizes only")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        what, *arguments = options.measure
        print(json.dumps(MEASUREMENTS[what](*arguments)))
        return
    measure_first()  # imports and compiled code are told on a line of their own
    table = list(HEADER)
    print("\n".join(HEADER))
    for size in QUICK if options.quick else SIZES:
        for line in rows_of_table(size):
            print(line, flush=True)
            table.append(line)
    others = other_lines(options.quick)
    print("", *others, sep="\n")
    if options.write:
        write_between(Path(__file__).with_name("README.md"), "trees", [*table, "", *others])


if __name__ == "__main__":
    main()
