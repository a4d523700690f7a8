"""What ranges that are too wide cost with differential privacy, and what a first look would save.

    python experiments/private_scales.py [--draws 6] [--rows 1000 5000] [--epsilon 1]

The world is that of `private_gradients.py`: features are normal, of deviation 1, so their range is
−2 to 2. They are declared so many times as wide, around the same middle or from the same lower end.
"As declared" is `fedopl.learn`, whatever the range. "A tenth first" spends a tenth of μ² on means
and squares of features, with noise of each client's own, and the rest on the same study with ranges
of two deviations around the means that were told, as far as noise lets them be. No such release is
part of a study: here it is made up from the rows, to see what it would be worth.
"""

import argparse
import statistics

import numpy as np
from private_gradients import FEATURES, N_CLIENTS, N_FEATURES, World
from threadpoolctl import threadpool_limits

import fedopl
from fedopl.base.arrays import FloatArray
from fedopl.privacy.accountant import epsilon_for, mu_for

DELTA, FIRST = 1e-6, 0.1
OF_MEANS = 1 / 3  # of what is spent first; squares of small numbers drown sooner
Ranges = dict[str, tuple[float, float]]


def declared(times: float, *, centred: bool) -> Ranges:
    """Ranges so many times as wide as they should be."""
    own = (-2 * times, 2 * times) if centred else (-2.0, -2 + 4 * times)
    return dict.fromkeys(FEATURES, own)


def measured(world: World, ranges: Ranges, mu: float, rng: np.random.Generator) -> Ranges:
    """Ranges of two deviations around means, as sums with noise tell them."""
    low, high = np.array([ranges[name] for name in FEATURES]).T
    middle, unit = (low + high) / 2, (high - low) / 4
    means, squares = np.zeros((2, N_FEATURES))
    n_rows = sum(data.n_rows for data in world.clients.values())
    for data in world.clients.values():
        scaled = np.clip((data.contexts - middle) / unit, -2, 2)
        means += scaled.sum(axis=0) / n_rows
        squares += (scaled**2).sum(axis=0) / n_rows
    # A row's numbers are within ±2, so 2√p long at most, and its squares twice that.
    longest = 2 * np.sqrt(N_FEATURES) * np.sqrt(N_CLIENTS) / n_rows
    of_means = longest / (mu * np.sqrt(OF_MEANS))
    of_squares = 2 * longest / (mu * np.sqrt(1 - OF_MEANS))
    means += of_means * rng.normal(size=N_FEATURES)
    squares += of_squares * rng.normal(size=N_FEATURES)
    # No narrower than noise leaves sure.
    spread = np.sqrt(np.clip(squares - means**2, 2 * of_squares, 1.0))
    ends = (middle + unit * (means + side * 2 * spread) for side in (-1, 1))
    return {name: (float(a), float(b)) for name, a, b in zip(FEATURES, *ends, strict=True)}


def learned(world: World, ranges: Ranges, epsilon: float, draw: int) -> float:
    """The regret of what is learned with these ranges."""
    run = fedopl.learn(
        world.clients,
        privacy=fedopl.PrivacyPlan(
            epsilon=epsilon, delta=DELTA, outcome=(-4.5, 4.5), ranges=ranges
        ),
        basis="linear",
        declared=fedopl.Declared(overlap=0.05),
        evaluation=0,
        running=fedopl.Running(secret=f"draw {draw}"),
    )
    return world.regret(run.policy)


def both(world: World, ranges: Ranges, epsilon: float, draw: int) -> FloatArray:  # (2,)
    """As declared, and with a tenth first."""
    mu = mu_for(epsilon, DELTA)
    rng = np.random.default_rng([draw, 11])
    found = measured(world, ranges, mu * np.sqrt(FIRST), rng)
    rest = epsilon_for(mu * np.sqrt(1 - FIRST), DELTA)
    return np.array([learned(world, ranges, epsilon, draw), learned(world, found, rest, draw)])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Ranges that are too wide.")
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0])
    given = parser.parse_args()
    print("| rows a client | ε | ranges | as declared | a tenth first |\n|---:|---:|---|---:|---:|")
    for n_rows in given.rows:
        for epsilon in given.epsilon:
            for times, centred in ((1, True), (3, True), (10, True), (3, False), (10, False)):
                ranges = declared(times, centred=centred)
                found = [
                    both(World(draw, n_rows, 0.0), ranges, epsilon, draw)
                    for draw in range(given.draws)
                ]
                where = "" if centred else ", from the lower end"
                cells = (_mean(own) for own in np.transpose(found))
                print(f"| {n_rows} | {epsilon:g} | {times} ×{where} | {' | '.join(cells)} |")


def _mean(values: FloatArray) -> str:
    error = statistics.stdev(values) / np.sqrt(len(values))
    return f"{statistics.mean(values):.4f} ± {error:.4f}"


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
