"""Trees of depth two from ready scores: fedopl beside econml, pystreed and policytree.

`fedopl.search_tree` beside econml's `PolicyTree` (greedy), pystreed (the best tree on a grid of
quantiles) and R's policytree (the best of all). Action 1 is right where two features lie on the
same side of their thresholds, which a greedy first split does not see; the other actions have
thresholds of their own, and every score has noise of variance 1. "Value" is the sum of the scores
of what was decided, in the rows that were searched; "without noise" is the same by the means behind
the scores. Seconds are of all threads, for fedopl from rows and scores to the tree, for the others
of their fit alone, five times in turns; machine code was compiled before. "Refined" is
`search_tree`'s second look close to the thresholds that it found, for one party with all rows; a
federation has the grid.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from harness import AbsentError, Column, Options, Row, Table, in_child, options, spread, tell, write
from process import growth
from tree_peers import Fitted, econml_tree, policytree, streed_tree

import fedopl

SIZES = ((1_000, 30, 3), (10_000, 10, 3), (100_000, 20, 4), (1_000_000, 20, 4))
QUICK = ((1_000, 5, 3),)
MEDIUM = SIZES[1]
LARGEST = SIZES[-1]
BINS = (32, 64)
OURS = "fedopl, 64 bins"
REFINED = "fedopl, 64 bins, refined"
EXACT = "fedopl, observed thresholds"
TURNS, DRAWS = 5, 20
READING = """
The greedy tree gets half of what there is, or less. A grid gives away what lies between a true
threshold and the nearest cut: where rewards jump as they do here, 0.4 to 3.2 % on 64 bins. On the
same 32 bins of 100,000 rows pystreed finds a tree of the same value. There the exact search takes a
hundred times as long as a grid; among 1,000 rows with 30 features it takes less, since a search
over cells takes as long for few rows as for many. At a million rows there is no exact value to
compare with. On 64 bins most of the memory is cells, which do not grow with the rows.
"""

Method = Callable[[np.ndarray, np.ndarray], Fitted]


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


def measure(size: tuple[int, int, int], turns: int) -> list[Row]:
    """Every search on the same rows, in turns; a note says why there is no measurement."""
    given = problem(*size)
    rows: dict[str, Row] = {}
    seconds: dict[str, list[float]] = {}
    remaining = searches(size[0])
    for name, search in remaining.items():
        rows[name] = {"size": " × ".join(f"{length:,}" for length in size), "search": name}
        if isinstance(search, str):
            rows[name]["note"] = search
    for _ in range(turns):
        for name, search in remaining.items():
            if "note" in rows[name]:
                continue
            tell(__file__, rows[name]["size"], name)
            try:
                fitted = search(given.contexts, given.scores)
            except AbsentError as absent:
                rows[name]["note"] = str(absent)
                continue
            rows[name]["value"] = given.earned(given.scores, fitted.decisions)
            rows[name]["mean"] = given.earned(given.means, fitted.decisions)
            seconds.setdefault(name, []).append(fitted.seconds)
    for name, spent in seconds.items():
        rows[name] |= spread(spent)
        rows[name]["times"] = rows[name]["median"] / statistics.median(seconds[OURS])
        if "value" in rows[EXACT]:
            rows[name]["share"] = 100 * rows[name]["value"] / rows[EXACT]["value"]
    return list(rows.values())


# --- the tables -----------------------------------------------------------------------------------

COLUMNS = (
    Column("rows × features × actions", "{size}", text=True),
    Column("search", "{search}", text=True),
    Column("value", "{value:,.1f}"),
    Column("of the exact one", "{share:.2f} %"),
    Column("without noise", "{mean:,.1f}"),
    Column("CPU seconds", "{median:.3f}"),
    Column("least – most", "{least:.3f} – {most:.3f}", text=True),
    Column("times fedopl's, 64 bins", "{times:~3}×"),
)
OTHERS = (Column("what else", "{what}", text=True), Column("measured", "{measured}"))


def found(what: str, measured: str, **numbers: float) -> Row:
    """A row of the second table: words, and the numbers behind them."""
    return {"what": what, "measured": measured, **numbers}


def grid_rows() -> list[Row]:
    """What a grid gives away, over draws of the problem with thresholds anywhere."""
    n_rows, n_features, n_actions = MEDIUM
    shares: dict[tuple[int, bool], list[float]] = {
        (bins, refine): [] for refine in (False, True) for bins in BINS
    }
    for seed in range(DRAWS):
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
        policy="tree",
        tree=fedopl.TreePlan(bins=bins, columns=columns),
        nuisances=fedopl.NuisancePlan(kind="local", propensity="known"),
        evaluation_share=0,
    )
    (sizes,) = [latest.received for latest in run.rounds if latest.query == "SumCells"]
    asked = f"{len(columns)} of {contexts.shape[1]}" if columns else f"all {contexts.shape[1]}"
    each = max(sizes.values()) / 1024
    name = f"a client's CellSums, {scores.shape[1]} actions, {asked} columns, {bins} bins"
    return found(name, f"{each:,.0f} KB", kb=each)


def other_rows(quick: bool) -> list[Row]:
    """What is not told by size."""
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


def measure_first() -> float:
    """CPU seconds of a first search, on a few rows."""
    given = problem(100, 5, 3)
    return on_observed(given.contexts, given.scores).seconds


def measure_memory(bins: str) -> int:
    """How far the peak of a search lies above the memory that its input takes."""
    search = on_grid(int(bins))
    search(*problem(100, *LARGEST[1:])[:2])  # imports are not the search's memory
    contexts, scores, _ = problem(*LARGEST)
    plan = fedopl.TreePlan(depth=2, bins=int(bins))
    return growth(lambda: fedopl.search_tree(contexts, scores, plan))


MEASUREMENTS = {"first": measure_first, "memory": measure_memory}


def main(given: Options) -> None:
    """Measure and write."""
    if given.measure:
        what, *arguments = given.measure
        print(json.dumps(MEASUREMENTS[what](*arguments)))
        return
    measure_first()  # imports and compiled code are told on a line of their own
    sizes, turns = (QUICK, 1) if given.quick else (SIZES, TURNS)
    rows = [row for size in sizes for row in measure(size, turns)]
    write(__file__, given, Table(COLUMNS, rows), Table(OTHERS, other_rows(given.quick)), peers=True)


if __name__ == "__main__":
    main(options(__doc__))
