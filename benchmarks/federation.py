"""What the door costs: in-process rounds beside a plain numpy loop, and bytes by method.

    python benchmarks/federation.py [--write]

The same local steps (40 parameters, 5 steps of 32 rows, 100 rows a client) are taken through the
door, with every message encoded, checked, written to a ledger and decoded, and in a plain loop
that has nothing else to do. Rounds alternate in one process; seconds are medians.
"""

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

import fedopl
from fedopl.client.door import Door
from fedopl.client.limits import Limits
from fedopl.engines.in_process import InProcess
from fedopl.files import write_between
from fedopl.server.conversation import Conversation
from fedopl.server.journal import Journal
from fedopl.wire.vocabulary import ImprovedPolicy, ImprovePolicy, ScoreSums, SumScores

N_ACTIONS, N_FEATURES, N_ROWS = 4, 9, 100
STEPS, BATCH, TURNS = 5, 32, 15
CLIENTS = (3, 100, 1000)


def logged(seed: int, n_rows: int = N_ROWS, n_features: int = N_FEATURES) -> fedopl.LoggedData:
    """A small client."""
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((n_rows, n_features))
    actions = np.arange(n_rows) % N_ACTIONS
    rewards = contexts[np.arange(n_rows), actions] + rng.standard_normal(n_rows)
    known = np.full((n_rows, N_ACTIONS), 1 / N_ACTIONS)
    return fedopl.LoggedData(contexts, actions, rewards, known, action_names="abcd")


class Federation:
    """Clients behind doors, scored and ready for rounds."""

    def __init__(self, n_clients: int) -> None:
        plan = fedopl.TrainingPlan(local_steps=STEPS, batch_size=BATCH)
        nuisances = fedopl.NuisancePlan(kind="local", propensity="known")
        self.data = {f"client {i:05d}": logged(i) for i in range(n_clients)}
        first = next(iter(self.data.values()))
        self.study = fedopl.Study(
            actions=first.action_names,
            features=first.feature_names,
            oracle="csoaa-sgd",
            plan=plan,
            nuisances=nuisances,
            evaluation_share=0,
        )
        doors = {
            name: Door(name, data, self.study, limits=Limits.open())
            for name, data in self.data.items()
        }
        self.conversation = Conversation(self.study, InProcess(doors), Journal())
        none = np.empty((0, N_ACTIONS, N_FEATURES + 1))
        self.conversation.ask(SumScores, self.data, ScoreSums, models=none, supported=none[..., 0])
        self.scores = {name: door._space.scores for name, door in doors.items()}

    def through_doors(self, parameters: np.ndarray) -> np.ndarray:
        """One round of Algorithm 1."""
        answers = self.conversation.ask(
            ImprovePolicy,
            self.data,
            ImprovedPolicy,
            round=0,
            parameters=parameters,
            centre=np.zeros(N_FEATURES + 1),
            scale=np.ones(N_FEATURES + 1),
        )
        return sum(answers[name].parameters for name in sorted(answers)) / len(answers)

    def plain(self, parameters: np.ndarray) -> np.ndarray:
        """The same arithmetic and nothing else."""
        total = np.zeros_like(parameters)
        for seed, (name, data) in enumerate(self.data.items()):
            total += self._plain_steps(parameters, data.contexts, self.scores[name], seed)
        return total / len(self.data)

    @staticmethod
    def _plain_steps(
        parameters: np.ndarray, contexts: np.ndarray, scores: np.ndarray, seed: int
    ) -> np.ndarray:
        rng = np.random.default_rng(seed)
        features = np.column_stack([contexts, np.ones(len(contexts))])
        current = parameters
        for _ in range(STEPS):
            pick = rng.integers(0, len(features), BATCH)
            x = features[pick]
            gradient = (x @ current.T - scores[pick]).T @ x / BATCH
            current = current - 0.1 * gradient
        return current


def overhead(n_clients: int) -> str:
    """One row of the table."""
    federation = Federation(n_clients)
    parameters = np.zeros((N_ACTIONS, N_FEATURES + 1))
    seconds: dict[str, list[float]] = {"doors": [], "plain": []}
    for turn in range(TURNS + 1):
        for name, work in (("doors", federation.through_doors), ("plain", federation.plain)):
            start = time.perf_counter()
            work(parameters)
            if turn:
                seconds[name].append(time.perf_counter() - start)
    doors, plain = statistics.median(seconds["doors"]), statistics.median(seconds["plain"])
    each = 1e6 * (doors - plain) / n_clients
    return f"| {n_clients:,} | {plain:.4f} | {doors:.4f} | {doors / plain:.2f}× | {each:.0f} µs |"


def traffic(name: str, **options: object) -> str:
    """Exchanges and bytes of one method, per client."""
    clients = {f"client {i}": logged(i, 600, 40) for i in range(3)}
    run = fedopl.learn(clients, **options)
    received = sum(latest.bytes_received for latest in run.rounds) / len(clients)
    sent = sum(latest.bytes_sent for latest in run.rounds) / len(clients)
    return f"| {name} | {len(run.rounds)} | {received / 1024:.1f} KB | {sent / 1024:.1f} KB |"


def tables() -> list[str]:
    """Both tables as Markdown."""
    return [
        "| clients | plain loop, s | through doors, s | ratio | each door adds |",
        "|---:|---:|---:|---:|---:|",
        *(overhead(n_clients) for n_clients in CLIENTS),
        "",
        "| method (4 actions, 40 features, 5 folds) | exchanges | a client sends | it receives |",
        "|---|---:|---:|---:|",
        traffic("csoaa-exact, federated nuisances"),
        traffic("csoaa-exact, local nuisances", nuisances="local"),
        traffic("csoaa-exact, local nuisances, blocks", nuisances="local", features="blocks"),
        traffic("csoaa-sgd, 40 rounds, local nuisances", nuisances="local", oracle="csoaa-sgd"),
        traffic("wap, local nuisances", nuisances="local", oracle="wap"),
        traffic("direct, local nuisances", nuisances="local", oracle="direct"),
        traffic("finite, local nuisances", nuisances="local", policy="finite"),
    ]


def main() -> None:
    """Measure, print, and write if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="update benchmarks/README.md")
    options = parser.parse_args()
    lines = tables()
    print("\n".join(lines))
    if options.write:
        write_between(Path(__file__).with_name("README.md"), "federation", lines)


if __name__ == "__main__":
    main()
