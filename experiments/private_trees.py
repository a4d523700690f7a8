"""What trees lose with differential privacy, where the truth is a tree of depth two.

    python experiments/private_trees.py [--draws 12] [--rows 10000] [--epsilons 0.25 1 8]

Three clients; ten normal features with ranges of −2 to 2; four actions, of which one adds 1 to the
outcome, as a tree of three random columns says. Propensities are known, other at every client, and
0.05 at least; outcomes have a deviation of about 1.2 and a range of −4 to 5; no rows are held out.
By ε, and last from exact sums, the mean regret over draws and its standard error, of the tree and
of a linear policy.
"""

import argparse

import numpy as np
from threadpoolctl import threadpool_limits

import fedopl
from fedopl.policies.policy import Policy

P, ACTIONS, LEAST = 10, tuple("abcd"), 0.05
FEATURES = tuple(f"x{place}" for place in range(P))
RANGES = dict.fromkeys(FEATURES, (-2.0, 2.0))


class World:
    """Rows whose best action a tree says."""

    def __init__(self, draw: int) -> None:
        self.draw, rng = draw, np.random.default_rng(draw)
        self.columns = rng.choice(P, 3, replace=False)
        self.cuts = rng.uniform(-0.7, 0.7, 3)
        self.leaves = rng.permutation(len(ACTIONS))
        slopes = rng.normal(size=P)
        self.slopes = 0.5 * slopes / np.linalg.norm(slopes)
        self.logging = 0.3 * rng.normal(size=(3, len(ACTIONS), P))

    def best(self, contexts: np.ndarray) -> np.ndarray:
        """The code of the best action."""
        root, left, right = (contexts[:, self.columns] <= self.cuts).T
        place = np.where(root, np.where(left, 0, 1), np.where(right, 2, 3))
        return self.leaves[place]

    def rows(self, n_rows: int, client: int) -> fedopl.LoggedData:
        """So many rows of one client."""
        rng = np.random.default_rng((self.draw, client))
        contexts = rng.normal(size=(n_rows, P))
        odds = np.exp(contexts @ self.logging[client].T)
        chances = LEAST + (1 - LEAST * len(ACTIONS)) * odds / odds.sum(axis=1, keepdims=True)
        actions = (rng.random((n_rows, 1)) > chances.cumsum(axis=1)).sum(axis=1).clip(0, 3)
        outcomes = contexts @ self.slopes + (actions == self.best(contexts))
        return fedopl.LoggedData(
            contexts,
            actions,
            outcomes + rng.normal(size=n_rows),
            chances[np.arange(n_rows), actions],
            action_names=ACTIONS,
            feature_names=FEATURES,
        )

    def regret(self, policy: Policy) -> float:
        """What a policy loses, per decision."""
        contexts = np.random.default_rng(99).normal(size=(20_000, P))
        return float((policy.decide(contexts) != self.best(contexts)).mean())


def regret(draw: int, n_rows: int, policy: str, epsilon: float | None) -> float:
    """What one policy loses; from exact sums where there is no ε."""
    world = World(draw)
    private = {
        "privacy": epsilon and fedopl.PrivacyPlan(epsilon=epsilon, outcome=(-4, 5), ranges=RANGES),
        "declared": fedopl.Declared(overlap=LEAST),
        "running": fedopl.Running(secret=f"draw {draw}"),
    }
    rows = {name: world.rows(n_rows, place) for place, name in enumerate("xyz")}
    run = fedopl.learn(rows, policy=policy, basis="linear", evaluation=0, **private)
    return world.regret(run.policy)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.25, 0.5, 1, 2, 4, 8])
    asked = parser.parse_args()
    print("| ε | tree | linear |")
    print("|---|---:|---:|")
    for epsilon in [*asked.epsilons, None]:
        found = [
            [regret(draw, asked.rows, policy, epsilon) for draw in range(asked.draws)]
            for policy in ("tree", "linear")
        ]
        said = " | ".join(_with_error(one) for one in found)
        print(f"| {epsilon or 'exact sums'} | {said} |", flush=True)


def _with_error(found: list[float]) -> str:
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    return f"{np.mean(found):.4f} ± {error:.4f}"


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
