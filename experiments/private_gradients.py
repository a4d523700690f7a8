"""What steps along gradients are worth with differential privacy, beside those of csoaa-exact.

    python experiments/private_gradients.py [--draws 10] [--rows 1000 5000] [--correlation 0 0.9]

Three clients of so many rows, ten normal features, of which neighbours are as correlated as said,
and four actions whose outcomes are linear, with effects and noise of deviation 1. Propensities are
known, ranges are −2 to 2, of outcomes −4.5 to 4.5, and no rows are held out. The mean regret over
draws, and its standard error; the best constant action loses about 0.6.
"""

import argparse
import statistics

import numpy as np
from threadpoolctl import threadpool_limits

import fedopl
from fedopl.base.arrays import FloatArray
from fedopl.policies.policy import Policy

N_FEATURES, N_ACTIONS, N_CLIENTS, N_FRESH = 10, 4, 3, 20_000
EPSILONS = (0.5, 1.0, 4.0)
FEATURES = tuple(f"x{place}" for place in range(N_FEATURES))


def by_gradients(rounds: int) -> fedopl.Linear:
    """A plan of so many steps along gradients."""
    return fedopl.Linear(oracle="csoaa-sgd", training=fedopl.TrainingPlan(rounds=rounds))


# The policy's plan, how many steps csoaa-exact takes, and which share of rows is in a step.
WAYS = {
    "csoaa-exact": (fedopl.Linear(), 4, 1.0),
    "csoaa-exact, 12 steps": (fedopl.Linear(), 12, 1.0),
    "csoaa-sgd, 15 rounds": (by_gradients(15), 4, 1.0),
    "csoaa-sgd, 40 rounds": (by_gradients(40), 4, 1.0),
    "csoaa-sgd, 40 rounds, sampled 0.2": (by_gradients(40), 4, 0.2),
}


class World:
    """Clients' rows, and what policies lose."""

    def __init__(self, draw: int, n_rows: int, alike: float) -> None:
        rng = np.random.default_rng([draw, 7])
        places = np.arange(N_FEATURES)
        spread = alike ** np.abs(places[:, None] - places).astype(float)
        self._factor = np.linalg.cholesky(spread)
        slopes = rng.normal(size=(N_ACTIONS, N_FEATURES))
        sizes = np.sqrt(np.einsum("ai,ij,aj->a", slopes, spread, slopes))
        self._slopes = slopes / sizes[:, None]
        self._levels = 0.5 * rng.normal(size=N_ACTIONS)
        self.clients = {
            f"client {place}": self._rows(np.random.default_rng([draw, place]), n_rows)
            for place in range(N_CLIENTS)
        }
        self._fresh = self._contexts(np.random.default_rng([draw, 99]), N_FRESH)

    def _contexts(self, rng: np.random.Generator, n_rows: int) -> FloatArray:
        found: FloatArray = rng.normal(size=(n_rows, N_FEATURES)) @ self._factor.T
        return found

    def _rows(self, rng: np.random.Generator, n_rows: int) -> fedopl.LoggedData:
        contexts = self._contexts(rng, n_rows)
        logits = 0.4 / np.sqrt(N_FEATURES) * contexts @ rng.normal(size=(N_FEATURES, N_ACTIONS))
        chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        chances = 0.8 * chances + 0.2 / N_ACTIONS
        actions = (rng.random(n_rows)[:, None] > chances.cumsum(axis=1)).sum(axis=1)
        means = (contexts @ self._slopes.T + self._levels)[np.arange(n_rows), actions]
        return fedopl.LoggedData(
            contexts,
            actions,
            means + rng.normal(size=n_rows),
            chances,
            action_names=tuple("abcd"),
            feature_names=FEATURES,
        )

    def regret(self, policy: Policy) -> float:
        """What it loses to the best, on fresh contexts."""
        means = self._fresh @ self._slopes.T + self._levels
        decided = means[np.arange(N_FRESH), policy.decide(self._fresh)]
        return float((means.max(axis=1) - decided).mean())


def regret(world: World, way: str, epsilon: float, draw: int) -> float:
    """What one way to learn loses in one world."""
    policy, steps, sampled = WAYS[way]
    plan = fedopl.PrivacyPlan(
        epsilon=epsilon,
        outcome=(-4.5, 4.5),
        ranges=dict.fromkeys(FEATURES, (-2.0, 2.0)),
        steps=steps,
        sampled=sampled,
    )
    run = fedopl.learn(
        world.clients,
        policy=policy,
        basis="auto" if policy.oracle == "csoaa-sgd" else "linear",
        evaluation=0,
        privacy=plan,
        declared=fedopl.Declared(overlap=0.05),
        running=fedopl.Running(secret=f"draw {draw}"),
    )
    return world.regret(run.policy)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--correlation", type=float, nargs="+", default=[0.0, 0.9])
    asked = parser.parse_args()
    print(f"| rows a client | correlation | ε | {' | '.join(WAYS)} |")
    print("|---:|---:|---:|" + "---:|" * len(WAYS))
    for n_rows in asked.rows:
        for alike in asked.correlation:
            worlds = [World(draw, n_rows, alike) for draw in range(asked.draws)]
            for epsilon in EPSILONS:
                cells = []
                for way in WAYS:
                    lost = [regret(world, way, epsilon, d) for d, world in enumerate(worlds)]
                    error = statistics.stdev(lost) / np.sqrt(len(lost))
                    cells.append(f"{statistics.mean(lost):.4f} ± {error:.4f}")
                print(f"| {n_rows} | {alike:g} | {epsilon:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
