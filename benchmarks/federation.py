"""The cost of the door: in-process rounds beside a plain numpy loop, and bytes by method.

The same local steps (4 × 10 parameters, 5 steps of 32 rows, 100 rows a client) are taken in a plain
numpy loop, and through doors. There every query and answer is encoded, decoded, checked on both
sides and written to a ledger. Rounds alternate in one process; seconds are medians of 15.
"""

import numpy as np
from harness import Column, Options, Row, Table, in_turns, options, spread, write

import fedopl
from fedopl import Linear
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.engines.in_process import InProcess
from fedopl.messages.learning.policy_steps import ImprovePolicy
from fedopl.messages.learning.score_sums import SumScores
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.exchange.journal import Journal

N_ACTIONS, N_FEATURES, N_ROWS = 4, 9, 100
STEPS, BATCH, TURNS = 5, 32, 15
CLIENTS, QUICK = (3, 100, 1000), (3,)
READING = """
Federated nuisances send the most: half a square matrix for every fold and action. They are worth it
where clients are small (`experiments/defaults.py`), and local nuisances are there where they are
not.
"""


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
            policy=fedopl.Linear(oracle="csoaa-sgd", training=plan),
            nuisances=nuisances,
            evaluation=0,
        )
        doors = {
            name: Door(name, data, self.study, limits=Limits.open(), secret=SEED_ALONE)
            for name, data in self.data.items()
        }
        self.conversation = Conversation(self.study, InProcess(doors), Journal())
        none = np.empty((0, N_ACTIONS, N_FEATURES + 1))
        self.conversation.each(SumScores(models=none, supported=none[..., 0]), self.data)
        self.scores = {name: door._space.scores for name, door in doors.items()}

    def through_doors(self, parameters: np.ndarray) -> np.ndarray:
        """One round of Algorithm 1."""
        query = ImprovePolicy(
            round=0,
            parameters=parameters,
            centre=np.zeros(N_FEATURES + 1),
            scale=np.ones(N_FEATURES + 1),
        )
        answers = self.conversation.each(query, self.data)
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


def overhead(n_clients: int, turns: int) -> Row:
    """One row of the first table."""
    federation = Federation(n_clients)
    parameters = np.zeros((N_ACTIONS, N_FEATURES + 1))
    found = in_turns(
        {
            "doors": lambda: federation.through_doors(parameters),
            "plain": lambda: federation.plain(parameters),
        },
        turns,
    )
    row: Row = {"clients": n_clients}
    row |= spread(found["doors"].seconds) | spread(found["plain"].seconds, "plain_")
    row["ratio"] = row["median"] / row["plain_median"]
    row["added_us"] = 1e6 * (row["median"] - row["plain_median"]) / n_clients
    return row


def traffic(name: str, **given: object) -> Row:
    """Exchanges and bytes of one method, per client."""
    clients = {f"client {i}": logged(i, 600, 40) for i in range(3)}
    run = fedopl.learn(clients, basis="linear", **{"nuisances": "local", **given})
    received = sum(latest.bytes_received for latest in run.rounds) / len(clients)
    sent = sum(latest.bytes_sent for latest in run.rounds) / len(clients)
    return {
        "method": name,
        "exchanges": len(run.rounds),
        "sent_kb": received / 1024,
        "received_kb": sent / 1024,
    }


OVERHEAD = (
    Column("clients", "{clients:,}"),
    Column("plain loop, s", "{plain_median:.4f}"),
    Column("through doors, s", "{median:.4f}"),
    Column("least – most", "{least:.4f} – {most:.4f}", text=True),
    Column("ratio", "{ratio:.2f}×"),
    Column("each door adds", "{added_us:.0f} µs"),
)
TRAFFIC = (
    Column("method (4 actions, 40 features, 5 folds)", "{method}", text=True),
    Column("exchanges", "{exchanges}"),
    Column("a client sends", "{sent_kb:.1f} KB"),
    Column("it receives", "{received_kb:.1f} KB"),
)


def methods() -> list[Row]:
    """The rows of the second table."""
    return [
        traffic("csoaa-exact, federated nuisances", nuisances="federated"),
        traffic("csoaa-exact, local nuisances"),
        traffic("csoaa-exact, local nuisances, blocks", policy=Linear(features="blocks")),
        traffic("csoaa-sgd, 40 rounds, local nuisances", policy=Linear(oracle="csoaa-sgd")),
        traffic("wap, local nuisances", policy=Linear(oracle="wap")),
        traffic("direct, local nuisances", policy=Linear(oracle="direct")),
        traffic("finite, local nuisances", policy="finite"),
    ]


def main(given: Options) -> None:
    """Measure and write."""
    sizes, turns = given.sizes(CLIENTS, QUICK), given.turns(TURNS)
    rows = [overhead(n_clients, turns) for n_clients in sizes]
    write(__file__, given, Table(OVERHEAD, rows), Table(TRAFFIC, methods()))


if __name__ == "__main__":
    main(options(__doc__))
