"""How many bins a client's rows can fill: what a tree of two questions gains, by bins and rows.

    python experiments/tree_bins.py

Two clients with default limits and 3 actions; action 1 is right where two of 4 columns lie on the
same side of their thresholds. Told is the share of the best tree's gain which the tree found really
has, on the grid and after a second look (`refine`); medians of some draws.
"""

import statistics
from dataclasses import replace

import numpy as np

import fedopl

ROWS, BINS, DRAWS = (500, 2_000, 8_000, 32_000), (4, 8, 16, 32), 9
ACTIONS, N_COLUMNS = ("0", "1", "2"), 4


def means(contexts: np.ndarray, cuts: np.ndarray) -> np.ndarray:  # (n_rows, n_actions)
    """What each action is worth."""
    beyond = contexts[:, :2] > cuts
    right = np.where(beyond[:, 0] == beyond[:, 1], 1.0, -1.0)
    return np.column_stack([np.zeros(len(right)), right, np.full(len(right), -0.2)])


def client(n_rows: int, cuts: np.ndarray, rng: np.random.Generator) -> fedopl.LoggedData:
    """One client; a quarter of its rows would be held out, so it has as many more."""
    n_all = n_rows * 4 // 3
    contexts, actions = rng.standard_normal((n_all, N_COLUMNS)), rng.integers(0, 3, n_all)
    rewards = means(contexts, cuts)[np.arange(n_all), actions] + rng.standard_normal(n_all)
    known = np.full((n_all, 3), 1 / 3)
    return fedopl.LoggedData(contexts, actions, rewards, known, action_names=ACTIONS)


def draw(n_rows: int, bins: int, seed: int) -> list[float]:
    """What both trees gain, as shares of what there is to gain."""
    rng = np.random.default_rng(seed)
    cuts = rng.normal(0, 0.2, 2)
    clients = {name: client(n_rows, cuts, rng) for name in ("north", "south")}
    people = np.random.default_rng(99).standard_normal((100_000, N_COLUMNS))
    worth = means(people, cuts)
    best = worth.max(axis=1).mean()
    run = fedopl.learn(
        clients,
        basis="linear",
        policy=fedopl.Tree(bins=bins),
        limits="guarded",
        evaluation=fedopl.EvaluationPlan(describe=False),
    )
    closer = run.tree.closer
    on_grid = replace(run.policy, root=closer.look.root) if closer else run.policy
    return [
        float(worth[np.arange(len(people)), tree.decide(people)].mean() / best)
        for tree in (on_grid, run.policy)
    ]


def main() -> None:
    """Print a row for each number of rows and bins."""
    print("| rows to learn from, each client | bins | on the grid | refined |")
    print("|---:|---:|---:|---:|")
    for n_rows in ROWS:
        for bins in BINS:
            found = [draw(n_rows, bins, seed) for seed in range(DRAWS)]
            told = (f"{statistics.median(part):.0%}" for part in zip(*found, strict=True))
            print(f"| {n_rows:,} | {bins} | {' | '.join(told)} |", flush=True)


if __name__ == "__main__":
    main()
