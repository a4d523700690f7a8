"""Many actions and many features: up to d = 100 and p = 200, from arrays to a policy.

The problem of the peers with other sizes. fedopl has marginal propensities and local nuisances,
with and without evaluation on a quarter of the rows. Beside it are scikit-learn refitted for every
fold and action, and one bare `X.T @ X`. Each runs in a process of its own, on one thread. With 100
actions and 200 features, every model has 201 coefficients and 1,000 rows or fewer.
"""

import json

from harness import TURNS, Column, Options, Row, Table, in_child, options, spread, write
from problem import draw, held_out_contexts, regret
from process import cost

# actions, features, rows
SIZES = ((4, 200, 40_000), (100, 40, 100_000), (100, 200, 100_000))
QUICK = ((20, 20, 2_000),)
COLUMNS = (
    Column("actions", "{actions}"),
    Column("features", "{features}"),
    Column("rows", "{rows:,}"),
    Column("method", "{method}", text=True),
    Column("seconds", "{median:~3}"),
    Column("least – most", "{least:~3} – {most:~3}", text=True),
    Column("times X.T @ X", "{bare:~3}×"),
    Column("regret", "{regret:~2}"),
    Column("memory added", "{memory_mb:~3} MB"),
)
BARE = "X.T @ X"


def measure_here(name: str, actions: str, features: str, n_rows: str) -> Row:
    """In a process of its own: seconds, memory and regret of one method."""
    import peer_methods as methods

    n_actions, n_features = int(actions), int(features)
    methods.N_ACTIONS = n_actions
    learn = METHODS[name](methods)
    shape = {"n_actions": n_actions, "n_features": n_features}
    learn(draw(min(20 * n_actions, int(n_rows)), seed=1, **shape))
    rows = draw(int(n_rows), **shape)
    decide, measured = cost(lambda: learn(rows))
    contexts = held_out_contexts(n_actions, n_features)
    return measured | {"regret": regret(decide(contexts), contexts, n_actions)}


METHODS = {
    "fedopl": lambda methods: methods.fedopl_lean,
    "fedopl, evaluated": lambda methods: methods.fedopl_evaluated,
    "scikit-learn, refitted": lambda methods: methods.scikit_learn,
    BARE: lambda methods: methods.bare_product,
}


def measure(size: tuple[int, int, int], turns: int) -> list[Row]:
    """All methods on the same rows, in turns."""
    runs: dict[str, list[Row]] = {name: [] for name in METHODS}
    for _ in range(turns):
        for name, done in runs.items():
            done.append(in_child(__file__, name, *map(str, size)))
    rows = []
    for name, done in runs.items():
        row = dict(zip(("actions", "features", "rows"), size, strict=True)) | {"method": name}
        row |= spread(run["seconds"] for run in done)
        row |= spread((run["cpu"] for run in done), "cpu_")
        row["memory_mb"] = max(run["growth"] for run in done) / 2**20
        if name != BARE:
            row["regret"] = done[0]["regret"]
        rows.append(row)
    for row in rows:
        row["bare"] = row["median"] / rows[-1]["median"]
    return rows


def main(given: Options) -> None:
    """Measure and write."""
    if given.measure:
        print(json.dumps(measure_here(*given.measure)))
        return
    sizes, turns = (QUICK, 1) if given.quick else (SIZES, TURNS)
    write(__file__, given, Table(COLUMNS, [r for size in sizes for r in measure(size, turns)]))


if __name__ == "__main__":
    main(options(__doc__))
