"""What ranges that are too wide cost with differential privacy, and what measuring saves.

    python experiments/private_scales.py [--draws 6] [--rows 1000 5000] [--epsilon 1]

The world is that of `private_gradients.py`: features are normal, of deviation 1, so their range is
−2 to 2. They are declared so many times as wide, around the same middle or from the same lower end.
`scales = "measured"` spends a tenth of the budget on where features lie. With `--secure` answers
are added up under masks.
"""

import argparse
import statistics
from typing import Literal

import numpy as np
from private_gradients import FEATURES, World
from threadpoolctl import threadpool_limits

import fedopl

Scales = Literal["declared", "measured"]
Ranges = dict[str, tuple[float, float]]
WIDTHS = ((1, True), (3, True), (10, True), (3, False), (10, False))


def declared(times: float, *, centred: bool) -> Ranges:
    """Ranges so many times as wide as they should be."""
    own = (-2 * times, 2 * times) if centred else (-2.0, -2 + 4 * times)
    return dict.fromkeys(FEATURES, own)


def learned(
    world: World, ranges: Ranges, epsilon: float, scales: Scales, draw: int, *, secure: bool
) -> float:
    """The regret of what is learned with these ranges."""
    plan = fedopl.PrivacyPlan(
        epsilon=epsilon,
        outcome=(-4.5, 4.5),
        ranges=ranges,
        scales=scales,
        aggregation="secure" if secure else "plain",
    )
    run = fedopl.learn(
        world.clients,
        privacy=plan,
        basis="linear",
        declared=fedopl.Declared(overlap=0.05),
        evaluation=0,
        running=fedopl.Running(secret=f"draw {draw}"),
    )
    return world.regret(run.policy)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Ranges that are too wide.")
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0])
    parser.add_argument("--secure", action="store_true")
    given = parser.parse_args()
    print("| rows a client | ε | ranges | as declared | measured first |")
    print("|---:|---:|---|---:|---:|")
    for n_rows in given.rows:
        for epsilon in given.epsilon:
            for times, centred in WIDTHS:
                ranges = declared(times, centred=centred)
                cells = []
                for scales in ("declared", "measured"):
                    found = [
                        learned(
                            World(draw, n_rows, 0.0),
                            ranges,
                            epsilon,
                            scales,
                            draw,
                            secure=given.secure,
                        )
                        for draw in range(given.draws)
                    ]
                    cells.append(_mean(found))
                where = "" if centred else ", from the lower end"
                line = f"| {n_rows} | {epsilon:g} | {times} ×{where} | {' | '.join(cells)} |"
                print(line, flush=True)


def _mean(values: list[float]) -> str:
    error = statistics.stdev(values) / np.sqrt(len(values))
    return f"{statistics.mean(values):.4f} ± {error:.4f}"


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
