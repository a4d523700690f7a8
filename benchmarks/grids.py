"""What a grid of thresholds loses, and the resources of trees besides time.

The problem of [Trees](#trees). Shares are of the value that the best tree on all observed
thresholds has on the same rows, over draws of the problem with thresholds anywhere. "Federated" is
a study of three clients that hold these rows between them, with default limits. Its shares are of
what the best tree on all observed thresholds earns if one party learns it from all rows, by the
means behind the scores. Its bytes are all that a client sends for the tree. Memory is the peak
above the rows and scores. A client's `CellSums` are what one level of a federated tree sends.
"""

import json
import statistics
import tempfile

import numpy as np
from harness import Column, Options, Row, Table, in_child, options, spread, tell, write
from process import growth
from trees import (
    BINS,
    LARGEST,
    MEDIUM,
    QUICK,
    Problem,
    compile_first,
    on_grid,
    on_observed,
    problem,
)

import fedopl

DRAWS, FEDERATED_DRAWS = 20, 10
FEDERATED = ((8, True), (16, True), (32, True), (32, False), (64, False))  # bins, refined
COLUMNS = (Column("what", "{what}", text=True), Column("measured", "{measured}"))
READING = """
A grid gives away what lies between a true threshold and the nearest cut: where rewards jump as they
do here, 0.4 to 3.2 % on 64 bins. A federation's second look close to its thresholds wins most of it
back, from 8 bins as from 32. On 64 bins most of the memory is cells, which do not grow with the
rows.
"""


def found(what: str, measured: str, **numbers: float) -> Row:
    """A row of the table: words, and the numbers behind them."""
    return {"what": what, "measured": measured, **numbers}


def grid_rows() -> list[Row]:
    """What a grid gives away, over draws of the problem with thresholds anywhere."""
    n_rows, n_features, n_actions = MEDIUM
    shares: dict[tuple[int, bool], list[float]] = {
        (bins, refine): [] for refine in (False, True) for bins in BINS
    }
    for seed in range(DRAWS):
        tell(__file__, f"draw {seed + 1}")
        given = problem(n_rows, n_features, n_actions, seed)
        rows = given.contexts, given.scores
        exact = given.earned(given.scores, on_observed(*rows).decisions)
        for (bins, refine), values in shares.items():
            reached = given.earned(given.scores, on_grid(bins, refine=refine)(*rows).decisions)
            values.append(100 * reached / exact)
    size = " × ".join(f"{length:,}" for length in MEDIUM)
    return [
        found(
            f"share of the exact value at {size}, {bins} bins{', refined' * refine}, {DRAWS} "
            "draws: median, least – most",
            f"{statistics.median(values):.2f} %, {min(values):.2f} – {max(values):.2f} %",
            **spread(values),
        )
        for (bins, refine), values in shares.items()
    ]


def seconds_to_compile() -> list[Row]:
    """CPU seconds of a process's first search over observed thresholds, by what is on the disk."""
    with tempfile.TemporaryDirectory() as cache:
        cold, cached = (in_child(__file__, "first", NUMBA_CACHE_DIR=cache) for _ in range(2))
    first = "first search over observed thresholds, nothing compiled yet"
    return [
        found(first, f"{cold:.1f} CPU s", seconds=cold),
        found("the same in the next process, compiled code on disk", f"{cached:.1f} CPU s"),
    ]


def memory_row(bins: int) -> Row:
    """How much memory our search adds at its peak, over the rows' bins at a byte each."""
    added = in_child(__file__, "memory", str(bins))
    times = added / (LARGEST[0] * LARGEST[1])
    size = " × ".join(f"{length:,}" for length in LARGEST)
    told = f"{added / 2**20:.0f} MB, {times:.2f} × the binned rows"
    return found(f"peak memory added at {size}, {bins} bins", told, bytes=added)


def logged(given: Problem, n_clients: int) -> dict[str, fedopl.LoggedData]:
    """The problem's rows as so many clients would have logged them, actions drawn by chance."""
    contexts, scores, _ = given
    actions = np.random.default_rng(1).integers(0, scores.shape[1], len(scores))
    rewards = scores[np.arange(len(scores)), actions]
    rows = contexts, actions, rewards, np.full(scores.shape, 1 / scores.shape[1])
    return {
        f"client {first}": fedopl.LoggedData(*(part[first::n_clients] for part in rows))
        for first in range(n_clients)
    }


def learned(clients: dict[str, fedopl.LoggedData], limits: str, **options: object) -> fedopl.Run:
    """A tree that these clients learn with propensities that are known."""
    return fedopl.learn(
        clients,
        basis="linear",
        policy=fedopl.Tree(**options),
        nuisances=fedopl.NuisancePlan(kind="local", propensity="known"),
        evaluation=0,
        limits=limits,
    )


def sent_for_tree(run: fedopl.Run) -> float:
    """The most KB that a client sends in all exchanges about cells and thresholds."""
    asked = ("CountBins", "SumCells", "SumNearThresholds")
    rounds = [latest.received for latest in run.rounds if latest.query in asked]
    return max(sum(sizes[name] for sizes in rounds) for name in run.rows) / 1024


def federated_rows(size: tuple[int, int, int], draws: int) -> list[Row]:
    """What a federation's grid gives away, with and without a second look, and what it sends."""
    shares: dict[tuple[int, bool], list[float]] = {}
    sent: dict[tuple[int, bool], float] = {}
    for seed in range(draws):
        given = problem(*size, seed)
        exact = learned(logged(given, 1), "open", thresholds="observed").policy
        most = given.earned(given.means, exact.decide(given.contexts))
        for bins, refine in FEDERATED:
            tell(__file__, f"draw {seed + 1}, {bins} bins, federated")
            run = learned(logged(given, 3), "guarded", bins=bins, refine=refine)
            reached = given.earned(given.means, run.policy.decide(given.contexts))
            shares.setdefault((bins, refine), []).append(100 * reached / most)
            sent[bins, refine] = sent_for_tree(run)
    words = " × ".join(f"{length:,}" for length in size)
    return [
        found(
            f"federated at {words}, {bins} bins{', refined' * refine}, {draws} draws: share of the "
            "exact value, median, least – most; sent",
            f"{statistics.median(values):.2f} %, {min(values):.2f} – {max(values):.2f} %; "
            f"{sent[bins, refine]:,.0f} KB",
            kb=sent[bins, refine],
            **spread(values),
        )
        for (bins, refine), values in shares.items()
    ]


def message_row(bins: int, columns: tuple[str, ...]) -> Row:
    """The bytes of one client's sums over cells: the problem's rows, held by three clients."""
    given = problem(*MEDIUM)
    run = learned(logged(given, 3), "open", bins=bins, columns=columns)
    (sizes,) = [latest.received for latest in run.rounds if latest.query == "SumCells"]
    n_columns, n_actions = given.contexts.shape[1], given.scores.shape[1]
    asked = f"{len(columns)} of {n_columns}" if columns else f"all {n_columns}"
    each = max(sizes.values()) / 1024
    name = f"a client's CellSums, {n_actions} actions, {asked} columns, {bins} bins"
    return found(name, f"{each:,.0f} KB", kb=each)


def all_rows(quick: bool) -> list[Row]:
    """All of them, or what takes seconds."""
    messages = [message_row(bins, ("x0", "x1", "x2")) for bins in (BINS[:1] if quick else BINS)]
    if quick:
        return [*federated_rows(QUICK[0], 1), *messages]
    return [
        *grid_rows(),
        *federated_rows(MEDIUM, FEDERATED_DRAWS),
        *seconds_to_compile(),
        *(memory_row(bins) for bins in BINS),
        *(message_row(bins, ()) for bins in BINS),
        *messages,
    ]


# --- in processes of their own --------------------------------------------------------------------


def measure_memory(bins: str) -> int:
    """How far the peak of a search lies above the memory that its input takes."""
    search = on_grid(int(bins))
    search(*problem(100, *LARGEST[1:])[:2])  # imports are not the search's memory
    contexts, scores, _ = problem(*LARGEST)
    plan = fedopl.Tree(depth=2, bins=int(bins))
    return growth(lambda: fedopl.search_tree(contexts, scores, plan))


MEASUREMENTS = {"first": compile_first, "memory": measure_memory}


def main(given: Options) -> None:
    """Measure and write."""
    if given.measure:
        what, *arguments = given.measure
        print(json.dumps(MEASUREMENTS[what](*arguments)))
        return
    write(__file__, given, Table(COLUMNS, all_rows(given.quick)))


if __name__ == "__main__":
    main(options(__doc__))
