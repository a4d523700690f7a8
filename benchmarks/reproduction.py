"""One heterogeneous figure of the paper: our exact solver beside Vowpal Wabbit's online CSOAA.

    python benchmarks/reproduction.py [--seeds 3] [--write]

Both get the same rows, the same nuisances and the same doors, and take turns; only the oracle
differs. Vowpal Wabbit fits all of x (plain --csoaa), in 5 rounds of one pass over 5,120 rows; the
exact solver is shown on all of x, too, and on the paper's blocks. Seconds are sums over the figure,
regret is R_λ against argmax x_aᵀθ_a.
"""

import argparse
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import fedopl
from fedopl.files import write_between
from fedopl.reproduction.figures import HETEROGENEOUS_GRID
from fedopl.simulation.paper import paper_world

ONE_PASS = fedopl.TrainingPlan(rounds=5, local_steps=40, batch_size=128)
WAYS = {
    "exact, blocks": {"features": "blocks"},
    "exact, all of x": {},
    "Vowpal Wabbit, all of x": {"oracle": "csoaa-vw", "plan": ONE_PASS},
}
NUISANCES = fedopl.NuisancePlan(propensity="marginal")


def measure(n_seeds: int, reading: str) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Seconds by way, and mean regret by way and size."""
    seconds: dict[str, float] = defaultdict(float)
    regrets: dict[str, list[float]] = defaultdict(list)
    for n_rows in HETEROGENEOUS_GRID:
        lost: dict[str, list[float]] = defaultdict(list)
        for seed in range(n_seeds):
            world = paper_world("heterogeneous", reading=reading, seed=seed)
            rows = world.all_logged(n_rows)
            for way, options in WAYS.items():
                start = time.perf_counter()
                run = fedopl.learn(
                    rows, evaluation_share=0, quorum=0.01, nuisances=NUISANCES, **options
                )
                seconds[way] += time.perf_counter() - start
                lost[way].append(world.regret(run.policy, run.mixture, world.reference_policy()))
        for way in WAYS:
            regrets[way].append(float(np.mean(lost[way])))
    return seconds, regrets


def table(n_seeds: int) -> list[str]:
    """As Markdown, for both readings."""
    sizes = " | ".join(f"n = {n:,}" for n in HETEROGENEOUS_GRID)
    lines = [
        f"| reading | oracle | seconds | slower than exact, blocks | {sizes} |",
        "|---|---|---:|---:|" + "---:|" * len(HETEROGENEOUS_GRID),
    ]
    for reading in ("variance", "sd"):
        seconds, regrets = measure(n_seeds, reading)
        for way in WAYS:
            cells = " | ".join(f"{regret:.4f}" for regret in regrets[way])
            ratio = seconds[way] / seconds["exact, blocks"]
            lines.append(f"| {reading} | {way} | {seconds[way]:.1f} | {ratio:.1f}× | {cells} |")
    return lines


def main() -> None:
    """Measure, print, and write if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="update benchmarks/README.md")
    options = parser.parse_args()
    with threadpool_limits(1):
        lines = table(options.seeds)
    print("\n".join(lines))
    if options.write:
        write_between(Path(__file__).with_name("README.md"), "reproduction", lines)


if __name__ == "__main__":
    main()
