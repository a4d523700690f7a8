"""One heterogeneous figure of the paper: our exact solver beside Vowpal Wabbit's online CSOAA.

Both get the same rows, the same nuisances and the same doors, and take turns; only the oracle
differs. Vowpal Wabbit fits all of x (plain --csoaa), in 5 rounds of one pass over 5,120 rows. The
exact solver is shown on all of x as well, and on the paper's blocks. Seconds are for one draw of
the whole figure; the last columns are mean global regret against argmax x_aᵀθ_a.
"""

import time
from importlib.util import find_spec

import numpy as np
from harness import TURNS, Column, Options, Row, Table, options, spread, tell, write
from threadpoolctl import threadpool_limits

import fedopl
from fedopl.reproduction.run_cells import HETEROGENEOUS_GRID
from fedopl.simulation.paper import paper_world

ONE_PASS = fedopl.TrainingPlan(rounds=5, local_steps=40, batch_size=128, average="rounds")
WAYS = {
    "exact, blocks": fedopl.Linear(features="blocks"),
    "exact, all of x": fedopl.Linear(),
    "Vowpal Wabbit, all of x": fedopl.Linear(oracle="csoaa-vw", training=ONE_PASS),
}
VOWPAL, OURS = "Vowpal Wabbit, all of x", "exact, blocks"
QUICK = HETEROGENEOUS_GRID[:1]
NUISANCES = fedopl.NuisancePlan(propensity="marginal")


def measure(sizes: tuple[int, ...], n_draws: int, reading: str) -> list[Row]:
    """Seconds and mean regret of all ways, a row for each."""
    ways = {way: plan for way, plan in WAYS.items() if way != VOWPAL or find_spec("vowpalwabbit")}
    seconds: dict[str, list[float]] = {way: [0.0] * n_draws for way in ways}
    lost: dict[str, dict[int, list[float]]] = {way: {n: [] for n in sizes} for way in ways}
    for n_rows in sizes:
        for seed in range(n_draws):
            world = paper_world("heterogeneous", reading=reading, seed=seed)
            rows = world.all_logged(n_rows)
            for way, plan in ways.items():
                tell(__file__, reading, f"{n_rows:,} rows", f"draw {seed + 1}", way)
                start = time.perf_counter()
                run = fedopl.learn(
                    rows, policy=plan, evaluation=0, quorum=0.01, nuisances=NUISANCES
                )
                seconds[way][seed] += time.perf_counter() - start
                found = world.regret(run.policy, run.mixture, world.reference_policy())
                lost[way][n_rows].append(found)
    found: list[Row] = []
    for way in WAYS:
        row: Row = {"reading": reading, "oracle": way}
        if way in ways:
            row |= spread(seconds[way])
            row["slower"] = row["median"] / spread(seconds[OURS])["median"]
            row |= {f"n_{n}": float(np.mean(values)) for n, values in lost[way].items()}
        found.append(row if way in ways else row | {"note": "absent: not installed"})
    return found


def columns(sizes: tuple[int, ...]) -> tuple[Column, ...]:
    """Those of the table."""
    return (
        Column("reading", "{reading}", text=True),
        Column("oracle", "{oracle}", text=True),
        Column("seconds", "{median:.2f}"),
        Column("least – most", "{least:.2f} – {most:.2f}", text=True),
        Column(f"slower than {OURS}", "{slower:.1f}×"),
        *(Column(f"n = {n:,}", f"{{n_{n}:.4f}}") for n in sizes),
    )


def main(given: Options) -> None:
    """Measure and write."""
    sizes, draws = (QUICK, 1) if given.quick else (HETEROGENEOUS_GRID, TURNS)
    with threadpool_limits(1):
        rows = [r for name in ("variance", "sd") for r in measure(sizes, draws, name)]
    write(__file__, given, Table(columns(sizes), rows))


if __name__ == "__main__":
    main(options(__doc__))
