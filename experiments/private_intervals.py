"""How often intervals with differential privacy hold what they claim, and how wide they are.

    python experiments/private_intervals.py [--draws 600] [--first 0] [--rows 1000 10000]
        [--epsilon 1]

Three clients, four actions, five features, and known propensities that differ between clients and
are at least 0.25, a trial, or 0.05. Outcomes are linear in features, or bent, so that no linear
model of them is right. A policy is learned with noise and valued on the held-out quarter of rows.
What it is worth is known, and so is what it gains over the arm that looked best.

"Covers" should be 95 %. "Times as wide" compares the standard errors that were claimed with the
deviation of the errors that were made: 1 is exact, and more is wider than it need be.
"""

import argparse
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

import fedopl
from fedopl.base.seeds import generator_for
from fedopl.results.value_tables import LEARNED, arm_name

Array = np.ndarray
CLIENTS, ACTIONS = ("north", "west", "south"), ("a", "b", "c", "d")
FEATURES = tuple(f"x{place}" for place in range(5))
OUTCOMES = (-6.0, 6.0)
OVERLAPS = (0.25, 0.05)
N_FRESH = 100_000


class World:
    """What actions are worth, and what clients did."""

    def __init__(self, *, bent: bool, overlap: float) -> None:
        rng = generator_for(0, purpose="effects")
        slopes = rng.normal(size=(len(ACTIONS), len(FEATURES)))
        self.slopes = slopes / np.linalg.norm(slopes, axis=1, keepdims=True)
        self.levels = rng.normal(0, 0.5, len(ACTIONS))
        self.bends = bent * rng.normal(0, 0.8, slopes.shape)
        self.overlap = overlap

    def means(self, contexts: Array) -> Array:  # (n_rows, n_actions)
        """What each action is worth."""
        found: Array = contexts @ self.slopes.T + self.levels
        found += np.cos(2 * contexts) @ self.bends.T
        return found

    def logged(self, n_rows: int, draw: int, client: str) -> fedopl.LoggedData:
        """One client's rows."""
        rng = generator_for(draw, client=client, purpose="rows")
        contexts = rng.normal(size=(n_rows, len(FEATURES)))
        leaning = generator_for(0, client=client, purpose="logging").normal(size=self.slopes.shape)
        odds = np.exp(contexts @ leaning.T / 2)
        odds /= odds.sum(axis=1, keepdims=True)
        chances = self.overlap + (1 - len(ACTIONS) * self.overlap) * odds
        actions = (chances.cumsum(axis=1) > rng.random((n_rows, 1))).argmax(axis=1)
        every = np.arange(n_rows)
        outcomes = self.means(contexts)[every, actions] + rng.normal(size=n_rows)
        return fedopl.LoggedData(
            contexts,
            actions,
            np.clip(outcomes, *OUTCOMES),
            chances[every, actions],
            action_names=ACTIONS,
            feature_names=FEATURES,
        )


class Told(NamedTuple):
    """One estimate beside the truth."""

    error: float
    claimed: float  # its standard error
    is_held: bool


def told(estimate: fedopl.Estimate, truth: float) -> Told:
    """An estimate beside this truth."""
    low, high = estimate.interval()
    return Told(estimate.value - truth, estimate.standard_error, low <= truth <= high)


def once(world: World, n_rows: int, epsilon: float, draw: int) -> tuple[Told, Told]:
    """The learned policy's value, and its gain over the arm that looked best."""
    ranges = dict.fromkeys(FEATURES, (-2.0, 2.0))
    run = fedopl.learn(
        {name: world.logged(n_rows, draw, name) for name in CLIENTS},
        privacy=fedopl.PrivacyPlan(epsilon=epsilon, outcome=OUTCOMES, ranges=ranges),
        declared=fedopl.Declared(overlap=world.overlap),
        basis="linear",
        running=fedopl.Running(secret=f"draw {draw}"),
    )
    fresh = generator_for(0, purpose="fresh").normal(size=(N_FRESH, len(FEATURES)))
    means = world.means(fresh)
    worth = means[np.arange(N_FRESH), run.policy.decide(fresh)].mean()
    gain = worth - means[:, ACTIONS.index(run.best_arm)].mean()
    return told(run.values.of(LEARNED), worth), told(run.gains.over(arm_name(run.best_arm)), gain)


def cells(sizes: list[int], draws: range, epsilon: float) -> Iterator[str]:
    """Lines of the table."""
    for n_rows, overlap, bent in product(sizes, OVERLAPS, (False, True)):
        world = World(bent=bent, overlap=overlap)
        runs = [once(world, n_rows, epsilon, draw) for draw in draws]
        for what, found in zip(("value", "gain"), zip(*runs, strict=True), strict=True):
            errors, claimed, held = map(np.array, zip(*found, strict=True))
            wide = np.sqrt((claimed**2).mean() / (errors**2).mean())
            outcomes = "bent" if bent else "linear"
            yield (
                f"| {len(CLIENTS)} × {n_rows:,} | {overlap} | {outcomes} | {what} "
                f"| {held.mean():.1%} | {np.median(claimed):.3f} | {wide:.2f} |"
            )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=600)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--epsilon", type=float, default=1.0)
    given = parser.parse_args()
    print("| rows | overlap | outcomes | of | covers | standard error | times as wide |")
    print("|---|---|---|---|---|---|---|")
    draws = range(given.first, given.first + given.draws)
    for line in cells(given.rows, draws, given.epsilon):
        print(line, flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
