"""How few bins a federated tree needs if it has a second look, in worlds of every shape.

    python experiments/tree_grids.py [--draws 8] [--rows 500 2000] [--limits guarded] [--only TEXT]
                                     [--write]

Each draw is a world of its own, in which clients learn a tree of two questions with each number of
bins. Propensities are known, so that grids differ in nothing else. Told are the mean regret against
the best policy of all with the most bins, and how much more regret fewer bins have, in thousandths:
means of paired differences ± their standard errors. `--write` puts what holds for all worlds into
docs/trees.md.
"""

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from marked_pages import write_between
from threadpoolctl import threadpool_limits

import fedopl
from fedopl.base.arrays import FloatArray
from fedopl.policies.policy import Policy
from fedopl.simulation.named_worlds import SHAPED_WORLDS, shaped_world
from fedopl.simulation.shaped_worlds import N_NUMBERS

BINS = (8, 16, 32)
Case = tuple[str, int]  # a world, and the rows of each client
ASKED = ("CountBins", "SumCells", "SumNearThresholds")


def skewed(numbers: FloatArray) -> FloatArray:
    """Most values are small."""
    skew: FloatArray = np.exp(numbers)
    return skew


def far(numbers: FloatArray) -> FloatArray:
    """A few values are dozens of times as large as most."""
    return np.sign(numbers) * np.expm1(np.abs(numbers))


def half_units(numbers: FloatArray) -> FloatArray:
    """About ten values."""
    return np.round(2 * numbers) / 2


COLUMNS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "skewed columns": skewed,
    "far values": far,
    "columns of ten values": half_units,
}
SHAPES_OF_COLUMNS = ("steps", "xor")
# With default limits, clients refuse sums that one outcome dominates.
WORLDS = {name: (name, "") for name in SHAPED_WORLDS if name != "heavy-tails"} | {
    f"{name}, {columns}": (name, columns) for name in SHAPES_OF_COLUMNS for columns in COLUMNS
}


def told(columns: str, contexts: FloatArray) -> FloatArray:  # shaped as contexts
    """The numbers as clients have them."""
    if not columns:
        return contexts
    return np.column_stack([COLUMNS[columns](contexts[:, :N_NUMBERS]), contexts[:, N_NUMBERS:]])


@dataclass(frozen=True)
class Told:
    """A policy on contexts as clients have them."""

    policy: Policy
    columns: str

    def decide(self, contexts: FloatArray) -> np.ndarray:
        """The actions, from contexts as the world has them."""
        return self.policy.decide(told(self.columns, contexts))


def draw(world: str, n_rows: int, limits: str, seed: int) -> list[tuple[float, float, float]]:
    """For each number of bins: regret after the second look, on the grid, and KB sent."""
    name, columns = WORLDS[world]
    truth = shaped_world(name, seed)
    clients = {
        client: fedopl.LoggedData(
            told(columns, data.contexts),
            data.actions,
            data.rewards,
            data.propensities,
            action_names=data.action_names,
        )
        for client, data in truth.all_known(n_rows).items()
    }
    found = []
    for bins in BINS:
        run = fedopl.learn(
            clients,
            policy=fedopl.Tree(bins=bins, refine=True),
            nuisances=fedopl.NuisancePlan(propensity="known"),
            evaluation=0,
            limits=limits,
        )
        closer = run.tree.closer
        on_grid = replace(run.policy, root=closer.look.root) if closer else run.policy
        refined, alone = (truth.regret(Told(one, columns)) for one in (run.policy, on_grid))
        sizes = [sum(latest.received.values()) for latest in run.rounds if latest.query in ASKED]
        found.append((refined, alone, sum(sizes) / len(clients) / 1024))
    return found


def apart(more: FloatArray) -> str:
    """The mean over draws ± its standard error, in thousandths."""
    return f"{1000 * more.mean():+.0f} ± {1000 * more.std(ddof=1) / np.sqrt(len(more)):.0f}"


def row(name: str, regrets: FloatArray, usual: FloatArray) -> str:
    """The usual regret, (n_draws,), and how much more each number of bins has."""
    cells = [name, f"{1000 * usual.mean():.0f}", *(apart(own - usual) for own in regrets.T)]
    return f"| {' | '.join(cells)} |"


def summary(found: dict[Case, FloatArray]) -> list[str]:
    """Lines of a table over all worlds; each draw is a mean over them."""
    few, most = [f"{bins} bins" for bins in BINS[:-1]], f"{BINS[-1]} bins"

    def mean_over(n_rows: int | None, which: int) -> FloatArray:  # (n_draws, n_bins)
        own = [told for case, told in found.items() if n_rows in (None, case[1])]
        mean: FloatArray = np.mean(own, axis=0)[:, :, which]
        return mean

    refined, on_grid, sent = (mean_over(None, which) for which in range(3))
    sizes = [n for n in sorted({n for _, n in found}) if sum(own == n for _, own in found) > 1]
    by_size = [(f"of {n:,} rows", mean_over(n, 0)) for n in sizes]
    *kb, most_kb = (f"{sizes:,.0f}" for sizes in sent.mean(axis=0))
    return [
        f"| worlds | {' | '.join([most, *few])} |",
        "|---|" + "---:|" * len(BINS),
        *(row(name, own[:, :-1], own[:, -1]) for name, own in (("all", refined), *by_size)),
        row("all, without a second look", on_grid[:, :-1], on_grid[:, -1]),
        row(f"all, against {most} without it", refined[:, :-1], on_grid[:, -1]),
        f"| KB that a client sends | {' | '.join([most_kb, *kb])} |",
    ]


def main() -> None:
    """Print the table, and write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--rows", type=int, nargs="+", default=[500, 2_000])
    parser.add_argument("--limits", default="guarded")
    parser.add_argument("--only", metavar="TEXT", default="", help="worlds with this in their name")
    parser.add_argument("--write", action="store_true", help="put the table into docs/trees.md")
    options = parser.parse_args()
    worlds = {world: shaped_world(name) for world, (name, _) in WORLDS.items()}
    asked = dict.fromkeys(  # some worlds set the rows of each client
        (world, truth.rows or n_rows)
        for world, truth in worlds.items()
        if options.only in world
        for n_rows in options.rows
    )
    found: dict[Case, FloatArray] = {}
    # One BLAS thread for each process: together they fill the machine.
    with ProcessPoolExecutor(2, initializer=threadpool_limits, initargs=(1,)) as pool:
        for case in asked:
            drawn = pool.map(partial(draw, *case, options.limits), range(options.draws))
            found[case] = np.array(list(drawn))
            refined = found[case][:, :, 0]
            name = f"{case[0]}, {case[1]:,} rows"
            print(row(name, refined[:, :-1], refined[:, -1]), flush=True)
    lines = summary(found)
    print("\n".join(lines))
    if options.write:
        write_between(Path(__file__).parents[1] / "docs" / "trees.md", "grids", lines)


if __name__ == "__main__":
    main()
