"""What weights by noise are worth in fourteen worlds: `precision` as "rows", "clients" and "auto".

    python experiments/noisy_clients.py [--draws 8] [--rows 500] [--worlds NAME ...]

Worlds are those of `fedopl.simulation.named_worlds`, propensities are known, and no rows are held
out. By world, the mean regret with features as they are and with a basis; then the geometric mean
over worlds of regret against that of "rows", and the world where "auto" does worst beside it, in
standard errors of the difference over draws.
"""

import argparse
import math
import statistics

from threadpoolctl import threadpool_limits

import fedopl
from fedopl.simulation.named_worlds import SHAPED_WORLDS, shaped_world

WAYS = [(basis, how) for basis in (None, "auto") for how in ("rows", "clients", "auto")]
N_TEST = 8_000
Regrets = list[float]  # by draw


def regrets(name: str, n_rows: int, draws: int) -> list[Regrets]:
    """Of each way to learn, on the same draws."""
    found: list[Regrets] = [[] for _ in WAYS]
    for seed in range(draws):
        world = shaped_world(name, seed)
        rows = world.all_known(n_rows)
        for own, (basis, how) in zip(found, WAYS, strict=True):
            policy = fedopl.Linear(precision=how)
            run = fedopl.learn(rows, policy=policy, basis=basis, evaluation=0)
            own.append(world.regret(run.policy, N_TEST))
    return found


def beyond(own: Regrets, rows: Regrets) -> float:
    """The mean difference, in standard errors."""
    apart = [one - other for one, other in zip(own, rows, strict=True)]
    if len(apart) < 2 or not (error := statistics.stdev(apart)):
        return 0.0
    return statistics.mean(apart) / (error / math.sqrt(len(apart)))


def main() -> None:
    """Print the table, then what it comes to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--worlds", nargs="+", default=list(SHAPED_WORLDS))
    options = parser.parse_args()
    names = [how + (", basis" if basis else "") for basis, how in WAYS]
    print(f"| world | {' | '.join(names)} |\n|---|{'---:|' * len(names)}")
    found = {}
    for world in options.worlds:
        found[world] = regrets(world, options.rows, options.draws)
        print(
            f"| {world} | {' | '.join(f'{statistics.mean(x):.4f}' for x in found[world])} |",
            flush=True,
        )
    for start in (0, 3):
        for place in (start + 1, start + 2):
            ratios = [statistics.mean(r[place]) / statistics.mean(r[start]) for r in found.values()]
            errors = {world: beyond(r[place], r[start]) for world, r in found.items()}
            worst = max(errors, key=lambda world: errors[world])
            print(
                f"{names[place]}: × {statistics.geometric_mean(ratios):.3f} of rows; at worst "
                f"{errors[worst]:+.1f} standard errors ({worst})"
            )


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
