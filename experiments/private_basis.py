"""What a basis is worth with differential privacy: policies in x, and on terms chosen from noise.

    python experiments/private_basis.py [--draws 8] [--rows 1000 5000] [--worlds NAME ...]

Worlds are those of `fedopl.simulation.named_worlds`, with three clients of so many rows;
propensities are known, numbers have ranges of −2.5 to 2.5, outcomes −6 to 6, and no rows are held
out. By world, rows a client, ε and kind of basis, the mean regret over draws, and how many terms
were used.
"""

import argparse
import statistics

from threadpoolctl import threadpool_limits

import fedopl
from fedopl.simulation.named_worlds import shaped_world

EPSILONS = (1.0, 4.0, 8.0)
KINDS = ("linear", "auto")


def regret(name: str, n_rows: int, epsilon: float, kind: str, draw: int) -> tuple[float, int]:
    """What one policy loses, and how many terms it uses."""
    world = shaped_world(name, draw)
    rows = world.all_known(n_rows)
    *numbers, flag = next(iter(rows.values())).feature_names
    ranges = dict.fromkeys(numbers, (-2.5, 2.5)) | {flag: (0.0, 1.0)}
    run = fedopl.learn(
        rows,
        basis=kind,
        evaluation=0,
        privacy=fedopl.PrivacyPlan(epsilon=epsilon, outcome=(-6, 6), ranges=ranges),
        declared=fedopl.Declared(overlap=world.least_propensity),
        running=fedopl.Running(secret=f"draw {draw}"),
    )
    return world.regret(run.policy), run.policy.n_used


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--worlds", nargs="+", default=["linear", "smooth", "steps"])
    asked = parser.parse_args()
    print("| world | rows a client | ε | linear | auto | terms that auto used |")
    print("|---|---:|---:|---:|---:|---|")
    for name in asked.worlds:
        for n_rows in asked.rows:
            for epsilon in EPSILONS:
                found = {
                    kind: [regret(name, n_rows, epsilon, kind, d) for d in range(asked.draws)]
                    for kind in KINDS
                }
                means = [statistics.mean(one for one, _ in found[kind]) for kind in KINDS]
                used = sorted({n_terms for _, n_terms in found["auto"]})
                said = " | ".join(f"{mean:.4f}" for mean in means)
                print(f"| {name} | {n_rows} | {epsilon:g} | {said} | {used} |", flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
