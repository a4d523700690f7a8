"""What noise on the total gains over noise in every client's answers: regret, by clients and rows.

Worlds of ten features and four actions, with linear effects and logging that differs by client;
the best constant arm loses about 0.6 a decision. Under masks one of the clients may collude.

python experiments/private_totals.py --draws 8
"""

import argparse

import numpy as np

import fedopl
from fedopl.base.arrays import FloatArray
from fedopl.base.tables import text_table
from fedopl.policies.policy import Policy

N_FEATURES, N_ACTIONS, LEAST = 10, 4, 0.05
FEATURES = tuple(f"x{place}" for place in range(N_FEATURES))
RANGES = dict.fromkeys(FEATURES, (-2.0, 2.0))
SHAPES = ((3, 1000), (3, 10_000), (20, 2000), (100, 500))
EPSILONS = (0.5, 1.0, 4.0)
N_FRESH = 20_000


class World:
    """Effects of one draw."""

    def __init__(self, draw: int) -> None:
        self.rng = np.random.default_rng([draw, 7])
        slopes = self.rng.normal(size=(N_ACTIONS, N_FEATURES))
        self.slopes = slopes / np.linalg.norm(slopes, axis=1, keepdims=True)
        self.levels = self.rng.normal(0, 0.5, N_ACTIONS)

    def means(self, contexts: FloatArray) -> FloatArray:  # (n_rows, n_actions)
        """What actions are worth."""
        return np.asarray(contexts @ self.slopes.T + self.levels)

    def client(self, n_rows: int) -> fedopl.LoggedData:
        """Rows of a client that decides in its own way, by known chances."""
        contexts = self.rng.normal(size=(n_rows, N_FEATURES))
        odds = np.exp(contexts @ self.rng.normal(0, 0.2, (N_FEATURES, N_ACTIONS)))
        chances = odds / odds.sum(axis=1, keepdims=True)
        chances = LEAST + (1 - N_ACTIONS * LEAST) * chances
        drawn = self.rng.random((n_rows, 1))
        actions = np.minimum((chances.cumsum(axis=1) < drawn).sum(axis=1), N_ACTIONS - 1)
        every = np.arange(n_rows)
        outcomes = self.means(contexts)[every, actions] + self.rng.normal(size=n_rows)
        return fedopl.LoggedData(
            contexts,
            actions,
            outcomes,
            chances[every, actions],
            action_names=tuple("abcd"),
            feature_names=FEATURES,
        )

    def regret(self, policy: Policy | None) -> float:
        """What a policy loses to the best, a decision."""
        if policy is None:
            raise TypeError("a private study always ends with a policy")
        contexts = np.random.default_rng(99).normal(size=(N_FRESH, N_FEATURES))
        means = self.means(contexts)
        taken = means[np.arange(N_FRESH), policy.decide(contexts)]
        return float((means.max(axis=1) - taken).mean())


def regrets(shape: tuple[int, int], epsilon: float, aggregation: str, draws: int) -> list[float]:
    """By draw."""
    n_clients, n_rows = shape
    found = []
    for draw in range(draws):
        world = World(draw)
        clients = {f"c{place:03}": world.client(n_rows) for place in range(n_clients)}
        plan = fedopl.PrivacyPlan(
            epsilon=epsilon, outcome=(-5, 5), ranges=RANGES, aggregation=aggregation
        )
        run = fedopl.learn(
            clients,
            basis="linear",
            nuisances=fedopl.NuisancePlan(propensity="known"),
            privacy=plan,
            declared=fedopl.Declared(overlap=LEAST),
            evaluation=0,
            running=fedopl.Running(secret=f"{draw}"),
        )
        found.append(world.regret(run.policy))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=8)
    draws = parser.parse_args().draws
    rows = []
    for shape in SHAPES:
        for aggregation in ("plain", "secure"):
            cells = [f"{shape[0]} × {shape[1]:,}", aggregation]
            for epsilon in EPSILONS:
                lost = regrets(shape, epsilon, aggregation, draws)
                error = np.std(lost, ddof=1) / np.sqrt(draws)
                cells.append(f"{np.mean(lost):.4f} ± {error:.4f}")
            rows.append(cells)
            print(cells, flush=True)  # it takes minutes
    headers = ["clients × rows", "aggregation", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)]
    print(text_table(headers, rows))


if __name__ == "__main__":
    main()
