"""Global regret of the defaults on the paper's heterogeneous problem, beside the paper's pipeline.

    python experiments/defaults.py [--seeds 20] [--rows 1000 10000] [--only TEXT]
                                  [--without CLIENT] [--write]

Every pipeline learns from the same draws. λ = n̄, φ(x, a) = x_a, no rows held out (the truth is
known). Means over seeds with standard errors, and medians, as one draw can make a mean; `--write`
puts the table into README.md.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from marked_pages import write_between
from threadpoolctl import threadpool_limits

import fedopl
from fedopl.simulation.paper import paper_world

PAPER = fedopl.NuisancePlan(kind="local", outcome="ols", propensity="logistic")
BLOCKS = {"features": "blocks"}
in_blocks = partial(fedopl.Linear, features="blocks")
BY_ROWS = in_blocks(precision="rows")  # clients count as the mixture says
PIPELINES = {
    "paper: OLS, logistic, exact oracle": {"nuisances": PAPER, "policy": BY_ROWS},
    "paper, models on blocks": {
        "nuisances": PAPER.model_copy(update=BLOCKS),
        "policy": BY_ROWS,
    },
    'local ridge, auto propensity, `precision="rows"`': {"nuisances": "local", "policy": BY_ROWS},
    "**default**: federated ridge, auto propensity": {},
    'default, `precision="rows"`': {"policy": BY_ROWS},
    "the same, models on blocks": {"nuisances": fedopl.NuisancePlan(**BLOCKS), "policy": BY_ROWS},
    'default, `precision="clients"`': {"policy": in_blocks(precision="clients")},
    "default, `csoaa-sgd`": {"policy": in_blocks(oracle="csoaa-sgd")},
    "default, `wap`, shared features": {"policy": fedopl.Linear(oracle="wap")},
    'default, `direct`, `precision="rows"`': {
        "policy": in_blocks(oracle="direct", precision="rows")
    },
}


def regret(name: str, without: str, reading: str, n_rows: int, seed: int) -> float:
    """R_λ of one pipeline on one draw, against argmax x_aᵀθ_a; λ is of all clients."""
    world = paper_world("heterogeneous", reading=reading, seed=seed)
    options = {"policy": in_blocks(), **PIPELINES[name]}
    rows = world.all_logged(n_rows)
    weights = fedopl.mixture.empirical().weights({c: data.n_rows for c, data in rows.items()})
    rows.pop(without, None)
    run = fedopl.learn(rows, basis="linear", evaluation=0, quorum=0.01, **options)
    return world.regret(run.policy, weights, world.reference_policy())


def cell(
    pool: ProcessPoolExecutor, pipeline: tuple[str, str], case: tuple[str, int], n_seeds: int
) -> str:
    """Mean and standard error over seeds, and the median."""
    found = list(pool.map(partial(regret, *pipeline, *case), range(n_seeds)))
    error = np.std(found, ddof=1) / np.sqrt(n_seeds) if n_seeds > 1 else np.nan
    return f"{np.mean(found):.4f} ± {error:.4f} ({np.median(found):.4f})"


def main() -> None:
    """Print the table, and write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--only", metavar="TEXT", help="pipelines whose name has this in it")
    parser.add_argument("--without", metavar="CLIENT", default="", help="learn without it")
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    options = parser.parse_args()
    cases = [(reading, n) for reading in ("variance", "sd") for n in options.rows]
    header = ["pipeline", *(f"{reading}, n = {n:,}" for reading, n in cases)]
    table = [f"| {' | '.join(header)} |", "|---|" + "---:|" * len(cases)]
    print("\n".join(table))
    # One BLAS thread for each process: together they fill the machine.
    with ProcessPoolExecutor(initializer=threadpool_limits, initargs=(1,)) as pool:
        for name in (name for name in PIPELINES if (options.only or "") in name):
            cells = [cell(pool, (name, options.without), case, options.seeds) for case in cases]
            table.append(f"| {' | '.join([name, *cells])} |")
            print(table[-1], flush=True)
    if options.write:
        write_between(Path(__file__).parents[1] / "README.md", "defaults", table)


if __name__ == "__main__":
    main()
