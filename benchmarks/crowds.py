"""What very many small clients cost in one process: 20 rows each, made when they are asked.

2 actions, 5 features, propensities known, nobody is evaluated. "Federation" is `fedopl.learn` with
a `ClientFactory`: every question opens a client's door, rows are made, and dropped after the answer
(the doors of the first 13,900 clients stay open, so their rows are made once).
"Plain loop" makes the same rows twice, and does the same arithmetic in plain numpy: sums
for each fold and action, everybody's models from them, scores and their sums, the solution; no
messages, checks, budgets or ledgers. Seconds are the processor's; memory is what each adds at its
peak, in a process of its own. Up to 1,000 clients are measured five times, and the least seconds
of each way count; others once.

`--again` measures some numbers of clients anew and leaves the others as they were.
"""

import json
from collections.abc import Callable

import numpy as np
from clients import N_FOLDS
from harness import Column, Options, Row, Table, in_child, kept_rows, options, write
from problem import Rows, draw
from process import cost

SIZES, QUICK = (1_000, 10_000, 30_000, 100_000), (20,)
N_ROWS, N_ACTIONS, N_FEATURES = 20, 2, 5
PENALTY = 1e-3
FEW_CLIENTS = 1_000  # that are measured more than once
READING = """
With 20 rows a client there is hardly any arithmetic: nearly all of the federation's time is for
doors, messages, checks and ledgers, which cost about the same for a client of 1,000 rows; see [Many
clients](#many-clients). Each client is answered by itself, in more than a thousand small steps,
none of which takes much; only what is the same for all, and the server's checks, is done for many
at once. Up to 13,900 clients doors stay open; beyond, a client's door is opened again for every
question, which takes somewhat longer. Then time goes with the number of clients. Memory is mostly
for doors that stay open, up to 256 MB, and for the server's answers.
"""
COLUMNS = (
    Column("clients", "{clients:,}"),
    Column("plain loop, CPU s", "{plain:~3}"),
    Column("federation, CPU s", "{cpu:~3}"),
    Column("ratio", "{ratio:.1f}×"),
    Column("each client: plain, µs", "{plain_us:,.0f}"),
    Column("federation, µs", "{us:,.0f}"),
    Column("memory: plain", "{plain_mb:~3} MB"),
    Column("federation", "{mb:~3} MB"),
    Column("a client, KB", "{client_kb:~3}"),
)


def rows_of(name: str) -> Rows:
    """A client's rows, which follow from its name."""
    return draw(N_ROWS, seed=int(name), n_features=N_FEATURES, n_actions=N_ACTIONS)


def federation(names: list[str]) -> object:
    """Everything that `fedopl.learn` does."""
    import fedopl

    known = np.full((N_ROWS, N_ACTIONS), 1 / N_ACTIONS)

    def make(name: str) -> fedopl.LoggedData:
        return fedopl.LoggedData(*rows_of(name), known, action_names=("a", "b"))

    return fedopl.learn(
        fedopl.ClientFactory(names, make),
        basis="linear",
        nuisances=fedopl.NuisancePlan(propensity="known"),
        evaluation=fedopl.EvaluationPlan(share=0, describe=False),
    )


def plain(names: list[str]) -> np.ndarray:
    """Two passes over the clients: sums for everybody's models, then scores and their sums."""
    width = N_FEATURES + 1
    grams = np.zeros((N_FOLDS, N_ACTIONS, width, width))
    products = np.zeros((N_FOLDS, N_ACTIONS, width))
    for name in names:
        rows, folds, design = _prepared(name)
        for fold in range(N_FOLDS):
            for action in range(N_ACTIONS):
                own = (folds == fold) & (rows.actions == action)
                block = design[own]
                grams[fold, action] += block.T @ block
                products[fold, action] += block.T @ rows.rewards[own]
    others = grams.sum(axis=0) - grams + PENALTY * np.eye(width)
    slopes = np.linalg.solve(others, (products.sum(axis=0) - products)[..., None])[..., 0]
    gram, product = np.zeros((width, width)), np.zeros((width, N_ACTIONS))
    every = np.arange(N_ROWS)
    for name in names:
        rows, folds, design = _prepared(name)
        scores = np.einsum("ip,iap->ia", design, slopes[folds])
        scores[every, rows.actions] += (rows.rewards - scores[every, rows.actions]) * N_ACTIONS
        gram += design.T @ design
        product += design.T @ scores
    return np.linalg.solve(gram, product).T


def _prepared(name: str) -> tuple[Rows, np.ndarray, np.ndarray]:
    rows = rows_of(name)
    folds = np.random.default_rng(int(name)).permutation(N_ROWS) % N_FOLDS
    return rows, folds, np.column_stack([rows.contexts, np.ones(N_ROWS)])


WAYS: dict[str, Callable[[list[str]], object]] = {"plain": plain, "federation": federation}


def measure_here(way: str, n_clients: str) -> Row:
    """In a process of its own: seconds, and bytes at the peak."""
    names = [f"{place:06d}" for place in range(int(n_clients))]
    WAYS[way](names[:3])
    return cost(lambda: WAYS[way](names))[1]


def summary(n_clients: int, ours: Row, loop: Row) -> Row:
    """One row of the table."""
    return {
        "clients": n_clients,
        "cpu": ours["cpu"],
        "seconds": ours["seconds"],
        "plain": loop["cpu"],
        "ratio": ours["cpu"] / loop["cpu"],
        "us": 1e6 * ours["cpu"] / n_clients,
        "plain_us": 1e6 * loop["cpu"] / n_clients,
        "mb": ours["growth"] / 2**20,
        "plain_mb": loop["growth"] / 2**20,
        "client_kb": ours["growth"] / 2**10 / n_clients,
    }


def measure(n_clients: int) -> Row:
    """Both ways on the same clients, in turns."""
    found: dict[str, list[Row]] = {"federation": [], "plain": []}
    for _ in range(5 if n_clients <= FEW_CLIENTS else 1):
        for way, own in found.items():
            own.append(in_child(__file__, way, str(n_clients)))
    ours, loop = (min(own, key=lambda row: row["cpu"]) for own in found.values())
    return summary(n_clients, ours, loop)


def main(given: Options) -> None:
    """Measure and write."""
    if given.measure:
        print(json.dumps(measure_here(*given.measure)))
        return
    again = given.chosen["again"]
    sizes = again or given.sizes(SIZES, QUICK)
    rows = [measure(n_clients) for n_clients in sizes]
    if again:
        kept = kept_rows(__file__, given)
        rows = [row for row in kept if row["clients"] not in again] + rows
        rows.sort(key=lambda row: row["clients"])
    write(__file__, given, Table(COLUMNS, rows))


if __name__ == "__main__":
    main(options(__doc__, again=SIZES))
