"""What a grid of thresholds gives away, and what trees take beside time.

The problem of [Trees](#trees). Shares are of the value that the best tree of all observed
thresholds has on the same rows, over draws of the problem with thresholds anywhere. Memory is the
peak above the rows and scores. A client's `CellSums` are what one level of a federated tree sends,
with the problem's rows held by three clients.
"""

import json
import statistics
import tempfile

import numpy as np
from harness import Column, Options, Row, Table, in_child, options, spread, tell, write
from process import growth
from trees import BINS, LARGEST, MEDIUM, compile_first, on_grid, on_observed, problem

import fedopl

DRAWS = 20
COLUMNS = (Column("what", "{what}", text=True), Column("measured", "{measured}"))
READING = """
A grid gives away what lies between a true threshold and the nearest cut: where rewards jump as they
do here, 0.4 to 3.2 % on 64 bins. On 64 bins most of the memory is cells, which do not grow with the
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


def message_row(bins: int, columns: tuple[str, ...]) -> Row:
    """The bytes of one client's sums over cells: the problem's rows, held by three clients."""
    contexts, scores, _ = problem(*MEDIUM)
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
        policy=fedopl.Tree(bins=bins, columns=columns),
        nuisances=fedopl.NuisancePlan(kind="local", propensity="known"),
        evaluation=0,
    )
    (sizes,) = [latest.received for latest in run.rounds if latest.query == "SumCells"]
    asked = f"{len(columns)} of {contexts.shape[1]}" if columns else f"all {contexts.shape[1]}"
    each = max(sizes.values()) / 1024
    name = f"a client's CellSums, {scores.shape[1]} actions, {asked} columns, {bins} bins"
    return found(name, f"{each:,.0f} KB", kb=each)


def all_rows(quick: bool) -> list[Row]:
    """All of them, or what takes seconds."""
    messages = [message_row(bins, ("x0", "x1", "x2")) for bins in BINS]
    if quick:
        return messages
    return [
        *grid_rows(),
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
