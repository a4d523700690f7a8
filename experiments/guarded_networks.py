"""What a network brings where clients guard its steps with noise, beside the linear policy.

    python experiments/guarded_networks.py [--draws 6] [--rows 4000 20000]

The world `deep`, whose outcomes are products of three features: three clients with so many rows
each, `limits="guarded"`, no rows held out. "Kept" counts the draws in which rows kept back spoke
for the network; in all others the linear policy is what was learned. Regret is the mean over draws,
on 60,000 fresh contexts, with its standard error; "by how much" is the difference on the same
draws.
"""

import argparse
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

import fedopl
from fedopl.simulation.named_worlds import shaped_world

N_FRESH = 20_000  # contexts of each client


class Draw(NamedTuple):
    """One draw of the world."""

    linear: float  # regret
    network: float
    is_kept: bool


def once(n_rows: int, draw: int) -> Draw:
    """Learn both from the same rows."""
    world = shaped_world("deep", draw)
    rows, (fresh, lost) = world.all_logged(n_rows), world.losses(N_FRESH)
    told: dict[str, Any] = {"basis": "linear", "limits": "guarded", "evaluation": 0}
    linear: Any = fedopl.learn(rows, **told).policy
    network: Any = fedopl.learn(rows, policy="neural", **told).policy
    every = np.arange(len(lost))
    return Draw(
        linear=float(lost[every, linear.decide(fresh)].mean()),
        network=float(lost[every, network.decide(fresh)].mean()),
        is_kept=not network.is_linear,
    )


def line(n_rows: int, draws: int) -> str:
    """One line of the table."""
    found = [once(n_rows, draw) for draw in range(draws)]
    linear, network, kept = (np.array(own) for own in zip(*found, strict=True))
    regrets = (linear, network, network - linear)
    texts = (f"{own.mean():.3f} ± {own.std(ddof=1) / np.sqrt(draws):.3f}" for own in regrets)
    return f"| {n_rows:,} | {' | '.join(texts)} | {kept.sum()} of {draws} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--rows", type=int, nargs="+", default=[4_000, 20_000])
    given = parser.parse_args()
    print("| rows a client | linear | network | by how much | kept |")
    print("|---:|---:|---:|---:|---:|")
    for n_rows in given.rows:
        print(line(n_rows, given.draws), flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
