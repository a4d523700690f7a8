"""Trees of depth two from ready scores: fedopl beside econml, pystreed and policytree.

`fedopl.search_tree` beside econml's `PolicyTree` (greedy), pystreed (the best tree on a grid of
quantiles) and R's policytree (the best of all). Action 1 is right if two features lie on the same
side of their thresholds, which a greedy first split does not see. The other actions have thresholds
of their own, and every score has noise of variance 1. "Value" is the sum of the scores of the
decisions, in the rows that were searched; "without noise" is the same by the means behind the
scores. Seconds are of all threads, for fedopl from rows and scores to the tree, for the others for
their fit alone, five times in turns; machine code was compiled before. "Refined" is `search_tree`'s
second look close to the thresholds that it found, for one party with all rows; the second look of a
federation is in [Grids of trees](#grids-of-trees).
"""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from harness import AbsentError, Column, Options, Row, Table, options, spread, tell, write
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
TURNS = 5
READING = """
The greedy tree gets half of what there is, or less. On the same 32 bins of 100,000 rows pystreed
finds a tree of the same value. There the exact search takes a hundred times as long as a grid;
among 1,000 rows with 30 features it takes less, since a search over cells takes as long for few
rows as for many. At a million rows there is no exact value to compare with.
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
    plan = fedopl.Tree(depth=2, **options)
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


def compile_first() -> float:
    """CPU seconds of a first search over observed thresholds, on a few rows."""
    given = problem(100, 5, 3)
    return on_observed(given.contexts, given.scores).seconds


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


# --- the table ------------------------------------------------------------------------------------

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


def main(given: Options) -> None:
    """Measure and write."""
    compile_first()  # so that no search is the first
    sizes, turns = (QUICK, 1) if given.quick else (SIZES, TURNS)
    rows = [row for size in sizes for row in measure(size, turns)]
    write(__file__, given, Table(COLUMNS, rows), peers=True)


if __name__ == "__main__":
    main(options(__doc__))
