"""One cell of an experiment: the regrets of every policy the paper compares, on one draw."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

from fedopl.client.table.logged_data import LoggedData
from fedopl.engines.learn import learn
from fedopl.simulation.hieropo import hier_opo
from fedopl.simulation.paper import CLIENTS, Decider, Kind, PaperWorld, Reading, paper_world
from fedopl.study.mixture import AnyMixture, Weights, empirical, skewed
from fedopl.study.plans import EvaluationPlan, NuisancePlan, TrainingPlan
from fedopl.study.policy_plans import Linear

Pipeline = Literal["default", "paper"]

# The paper's own pipeline: least squares and logistic regression inside each client, then rounds of
# online cost-sensitive classification. The paper does not give the number of rounds; see
# docs/reproduction.md.
PIPELINES: dict[Pipeline, dict[str, Any]] = {
    "default": {},
    "paper": {
        "nuisances": NuisancePlan(
            kind="local", outcome="ols", propensity="logistic", learning_clip=0
        ),
        "policy": Linear(
            features="blocks",
            oracle="csoaa-sgd",
            training=TrainingPlan(rounds=20, local_steps=10, batch_size=64, average="rounds"),
        ),
    },
}
# The experiments compare mixtures, so each client's weight in learning is that of the mixture.
_EXACT = Linear(features="blocks", precision="rows")
ALPHA = 0.2  # the paper's skew toward client 1
N_TEST = 10_000  # test rows from each client, as in the paper
N_REFERENCE = 100_000  # rows behind the paper's "optimal models"
SHOWN = CLIENTS[:2]  # the clients whose local regrets the paper shows


@dataclass(frozen=True, kw_only=True, order=True)
class Cell:
    """A unit of computation, stored in a file of its own."""

    kind: Kind
    reading: Reading
    pipeline: Pipeline
    n_rows: int
    seed: int

    @classmethod
    def of(cls, kind: Kind, reading: Reading, pipeline: Pipeline, n_rows: int, seed: int) -> Self:
        """A cell; in the homogeneous world all squares are one, so both readings are the same."""
        read = "variance" if kind == "homogeneous" else reading
        return cls(kind=kind, reading=read, pipeline=pipeline, n_rows=n_rows, seed=seed)

    @property
    def name(self) -> str:
        """The name of the cell's file."""
        return f"{self.kind}-{self.reading}-{self.pipeline}-{self.n_rows}-{self.seed}"


@dataclass(frozen=True, kw_only=True, order=True)
class Regret:
    """One number of a cell: how much a policy loses, at which client, and against which goal."""

    mixture: str  # of training: "empirical" or "skewed"; empty for "local" and "hieropo"
    policy: str  # "global", "pooled", "local" or "hieropo"
    where: str  # "global", or a client
    against: str  # "optimum" (the best action in every context) or "reference" (100K rows)
    regret: float


RegretTable = dict[Cell, list[Regret]]


def compute(cell: Cell) -> list[Regret]:
    """Learn every policy on this draw, and compute its regrets."""
    world = paper_world(cell.kind, reading=cell.reading, seed=cell.seed)
    best = {c: world.value(world.optimal_policy(c), c, N_TEST) for c in CLIENTS}
    rows = world.all_logged(cell.n_rows)
    found: list[Regret] = []
    for mixture, weights, policy in _global_policies(cell, rows):
        goals = {"optimum": best, "reference": _values(world, _reference(world, _shares(weights)))}
        found += _losses(_values(world, policy), goals, weights, (mixture, "global"))
        if mixture == "empirical":
            pooled = _learn({"everybody": _pooled(rows)}, PIPELINES[cell.pipeline])
            found += _losses(_values(world, pooled), goals, weights, (mixture, "pooled"))
    noise = {client: world.reward_sd[client] ** 2 for client in CLIENTS}
    for client in SHOWN:
        own = {client: world.logged(client, cell.n_rows, draw=1)}
        reference = _reference(world, {client: N_REFERENCE})
        goals = {"optimum": best, "reference": _values(world, reference)}
        policies: dict[str, Decider] = {
            "local": _learn(own, PIPELINES[cell.pipeline]),
            "hieropo": hier_opo(rows, client, noise_variances=noise),
        }
        for name, trained in policies.items():
            found += _losses(_values(world, trained), goals, {client: 1.0}, ("", name))
    return sorted(found)


def _global_policies(
    cell: Cell, rows: Mapping[str, LoggedData]
) -> list[tuple[str, Weights, Decider]]:
    """The federated policy for each mixture in the paper."""
    sizes = {client: data.n_rows for client, data in rows.items()}
    mixtures: dict[str, AnyMixture] = {"empirical": empirical()}
    if cell.kind == "heterogeneous":
        mixtures["skewed"] = skewed(CLIENTS[0], ALPHA)
    return [
        (name, mixture.weights(sizes), _learn(rows, PIPELINES[cell.pipeline], mixture))
        for name, mixture in mixtures.items()
    ]


def _pooled(rows: Mapping[str, LoggedData]) -> LoggedData:
    """All rows in one table, as a comparison for federation; not allowed in practice."""
    parts = [rows[client] for client in sorted(rows)]
    return LoggedData(
        np.vstack([part.contexts for part in parts]),
        np.concatenate([part.actions for part in parts]),
        np.concatenate([part.rewards for part in parts]),
        action_names=parts[0].action_names,
        feature_names=parts[0].feature_names,
    )


def _learn(
    rows: Mapping[str, LoggedData], options: Mapping[str, Any], mixture: object = "empirical"
) -> Decider:
    run = learn(
        rows,
        evaluation=EvaluationPlan(share=0, describe=False),
        quorum=0.01,
        mixture=mixture,
        **{"policy": _EXACT, **options},
    )
    if run.policy is None:
        raise TypeError("a linear study always ends with a policy")
    return run.policy


def _reference(world: PaperWorld, sizes: Mapping[str, int]) -> Decider:
    """The paper's "optimal model": the same policy class, learned from very many rows."""
    rows = {client: world.logged(client, size, draw=2) for client, size in sizes.items()}
    return _learn(rows, {"nuisances": NuisancePlan(propensity="marginal")})


def _shares(weights: Weights) -> dict[str, int]:
    """λ_c·100K rows for each client, so that the reference is optimal for the mixture itself."""
    return {client: max(round(weight * N_REFERENCE), 1) for client, weight in weights.items()}


def _values(world: PaperWorld, policy: Decider) -> dict[str, float]:
    """Q_c at every client, by exact mean rewards on the test rows of this draw."""
    return {client: world.value(policy, client, N_TEST) for client in CLIENTS}


def _losses(
    achieved: Mapping[str, float],
    goals: Mapping[str, Mapping[str, float]],
    weights: Weights,
    labels: tuple[str, str],
) -> list[Regret]:
    """The losses of a policy against each goal, labelled by its mixture and name."""
    mixture, name = labels
    found = []
    for against, best in goals.items():
        lost = {c: value - achieved[c] for c, value in best.items()}
        where = {client: lost[client] for client in SHOWN if client in weights}
        if len(weights) > 1:
            where["global"] = float(sum(weights[client] * lost[client] for client in weights))
        found += [
            Regret(mixture=mixture, policy=name, where=w, against=against, regret=value)
            for w, value in where.items()
        ]
    return found
