"""What noise on the total gains over noise in every client's answers: regret, by clients and rows.

Worlds of ten features and four actions, with linear effects and logging that differs by client;
the best constant arm loses about 0.6 a decision. Under masks one of the clients may collude.

python experiments/private_totals.py --draws 8

With `--masks-alone` it compares what masks leave where next to nothing is promised (ε = 50) with
exact sums that the server reads, each client's.
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
# Where masks alone protect, as large an ε as a study may have.
NEXT_TO_NOTHING, SMALLER_SHAPES = 50.0, ((25, 20), (3, 1000), (100, 100), (20, 2000))


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


def regrets(
    shape: tuple[int, int], epsilon: float | None, aggregation: str, draws: int
) -> list[float]:
    """By draw; without an ε, of exact sums."""
    n_clients, n_rows = shape
    found = []
    for draw in range(draws):
        world = World(draw)
        clients = {f"c{place:03}": world.client(n_rows) for place in range(n_clients)}
        plan = epsilon and fedopl.PrivacyPlan(
            epsilon=epsilon, outcome=(-5, 5), ranges=RANGES, aggregation=aggregation
        )
        run = fedopl.learn(
            clients,
            basis="linear",
            nuisances=fedopl.NuisancePlan(propensity="known"),
            privacy=plan or None,
            declared=fedopl.Declared(overlap=LEAST),
            evaluation=0,
            running=fedopl.Running(secret=f"{draw}"),
        )
        found.append(world.regret(run.policy))
    return found


def masks_alone(draws: int) -> str:
    """What masks leave beside what exact sums do."""
    rows = []
    for shape in SMALLER_SHAPES:
        exact = _mean(regrets(shape, None, "plain", draws))
        masked = _mean(regrets(shape, NEXT_TO_NOTHING, "secure", draws))
        rows.append([f"{shape[0]} × {shape[1]:,}", exact, masked])
    return text_table(["clients × rows", "exact sums", "under masks, ε = 50"], rows)


def _mean(lost: list[float]) -> str:
    error = np.std(lost, ddof=1) / np.sqrt(len(lost))
    return f"{np.mean(lost):.4f} ± {error:.4f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--masks-alone", action="store_true")
    given = parser.parse_args()
    draws = given.draws
    if given.masks_alone:
        print(masks_alone(draws))
        return
    rows = []
    for shape in SHAPES:
        for aggregation in ("plain", "secure"):
            found = (_mean(regrets(shape, epsilon, aggregation, draws)) for epsilon in EPSILONS)
            cells = [f"{shape[0]} × {shape[1]:,}", aggregation, *found]
            rows.append(cells)
            print(cells, flush=True)  # it takes minutes
    headers = ["clients × rows", "aggregation", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)]
    print(text_table(headers, rows))


if __name__ == "__main__":
    main()
