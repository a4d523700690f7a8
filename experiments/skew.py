"""When skewing the mixture toward client 1 helps client 1.

    python experiments/skew.py [--draws 20] [--rows 10000] [--write]

The paper's heterogeneous world with more rows for client 1 than ⌊log n⌋, both readings, two skews,
and several ways to learn. Each cell is R_1 at λ = n̄ less R_1 at the skewed mixture: above zero, the
skew helps. Means over paired draws with standard errors, regret against the best action in every
context; `--write` puts the table into docs/reproduction.md.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from marked_pages import write_between
from threadpoolctl import threadpool_limits

import fedopl
from fedopl.base.seeds import generator_for
from fedopl.reproduction.experiment_cells import N_TEST, PIPELINES
from fedopl.simulation.paper import CLIENTS, paper_world

FEW_PASSES = fedopl.TrainingPlan(rounds=5, local_steps=5, batch_size=64, average="rounds")
BOLD = FEW_PASSES.model_copy(update={"rate": 1.5})
MARGINAL = fedopl.NuisancePlan(propensity="marginal")
in_blocks = partial(fedopl.Linear, features="blocks")
WAYS = {
    "default, exact": {"nuisances": MARGINAL, "policy": in_blocks(precision="rows")},
    "exact, all of x": {"nuisances": MARGINAL, "policy": fedopl.Linear(precision="rows")},
    'exact, `precision="clients"`': {
        "nuisances": MARGINAL,
        "policy": in_blocks(precision="clients"),
    },
    "FedOPL, few passes": {
        "nuisances": MARGINAL,
        "policy": in_blocks(oracle="csoaa-sgd", training=FEW_PASSES),
    },
    "FedOPL, few passes, large steps": {
        "nuisances": MARGINAL,
        "policy": in_blocks(oracle="csoaa-sgd", training=BOLD),
    },
    "the paper's pipeline": PIPELINES["paper"],
    "Vowpal Wabbit, all of x": {
        "nuisances": MARGINAL,
        "policy": fedopl.Linear(oracle="csoaa-vw", training=FEW_PASSES),
    },
}
FIRST = CLIENTS[0]
SIZES = (None, 50, 200, 1000)  # rows of client 1; None is the paper's ⌊log n⌋
SKEWS = (0.2, 0.5)


def helped(way: str, reading: str, n_rows: int, own: int | None, draw: int) -> list[float]:
    """What client 1 gains by each skew, on one draw."""
    world = paper_world("heterogeneous", reading=reading, seed=draw)
    sizes = world.sizes(n_rows)
    sizes[FIRST] = own or sizes[FIRST]
    rows = {client: world.logged(client, size) for client, size in sizes.items()}
    contexts = world.contexts(FIRST, N_TEST, generator_for(draw, client=FIRST, purpose="test"))
    means = world.mean_rewards(FIRST, contexts)

    def value(mixture: object) -> float:
        options = {"evaluation": 0, "quorum": 0.01, **WAYS[way]}
        codes = fedopl.learn(rows, mixture=mixture, **options).policy.decide(contexts)
        return float(means[np.arange(len(codes)), codes].mean())

    plain = value("empirical")
    return [value(fedopl.mixture.skewed(FIRST, alpha)) - plain for alpha in SKEWS]


def cells(
    pool: ProcessPoolExecutor, way: str, reading: str, n_rows: int, n_draws: int
) -> list[str]:
    """Mean and standard error for each size of client 1 and each skew."""
    texts = []
    for own in SIZES:
        found = np.array(list(pool.map(partial(helped, way, reading, n_rows, own), range(n_draws))))
        errors = found.std(axis=0, ddof=1) / np.sqrt(n_draws)
        for mean, error in zip(found.mean(axis=0), errors, strict=True):
            mark = "**" if mean > 2 * error else ""
            texts.append(f"{mark}{mean:+.3f}{mark} ± {error:.3f}")
    return texts


def main() -> None:
    """Print the table, and write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--write", action="store_true", help="put the table into the docs")
    options = parser.parse_args()
    names = [f"n₁ = {own or '⌊log n⌋'}, α = {alpha}" for own in SIZES for alpha in SKEWS]
    table = [f"| reading | learned by | {' | '.join(names)} |", "|---|---|" + "---:|" * len(names)]
    print("\n".join(table))
    with ProcessPoolExecutor(initializer=threadpool_limits, initargs=(1,)) as pool:
        for reading in ("variance", "sd"):
            for way in WAYS:
                found = cells(pool, way, reading, options.rows, options.draws)
                table.append(f"| {reading} | {way} | {' | '.join(found)} |")
                print(table[-1], flush=True)
    if options.write:
        page = Path(__file__).parents[1] / "docs" / "reproduction.md"
        write_between(page, "skew", ["", *table, ""])


if __name__ == "__main__":
    main()
