"""The world of the paper's experiments (section "Experiments", Setup).

Three clients, four actions, ten features for each action. Contexts are Gaussian, logging is
uniform, rewards are linear in the action's own features; in the heterogeneous world client 1 has a
sine of it instead, other scales, and hardly any rows.

The paper leaves open whether its σ², ρ², ω² are variances. Under the reading "variance" they are;
under "sd", σ_c and ρ_c are 5 and 10 themselves and only ω² = 5 is a variance.
"""

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.seeds import generator_for
from fedopl.client.table.logged_data import LoggedData
from fedopl.policies.linear import LinearPolicy
from fedopl.study.mixture import Weights

Kind = Literal["homogeneous", "heterogeneous"]
Reading = Literal["variance", "sd"]

CLIENTS = ("client 1", "client 2", "client 3")
N_ACTIONS, N_OWN = 4, 10
BEND = 50.0  # k in k·sin(·/k)


class Decider(Protocol):
    """Anything with a method `decide`."""

    def decide(self, contexts: ArrayLike) -> IntArray:
        """The code of the action to take in each context."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class PaperWorld:
    """A draw of θ, and every client's distribution given it."""

    kind: Kind
    seed: int
    theta: FloatArray  # (n_actions, n_own)
    context_sd: dict[str, float]  # σ_c
    reward_sd: dict[str, float]  # ρ_c

    @property
    def action_names(self) -> tuple[str, ...]:
        """a₁ … a₄."""
        return tuple(f"a{action + 1}" for action in range(N_ACTIONS))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Ten features for each action, in blocks."""
        return tuple(f"{action}.{own + 1}" for action in self.action_names for own in range(N_OWN))

    def sizes(self, n_rows: int) -> dict[str, int]:
        """ν_c(n): equal thirds, or ⌊log n⌋ for client 1 and halves of the rest."""
        if self.kind == "homogeneous":
            return dict.fromkeys(CLIENTS, n_rows // len(CLIENTS))
        first = math.floor(math.log(n_rows))
        return {CLIENTS[0]: first, **dict.fromkeys(CLIENTS[1:], (n_rows - first) // 2)}

    def contexts(self, client: str, n_rows: int, rng: np.random.Generator) -> FloatArray:
        """X ~ N(0, σ_c² I)."""
        return rng.normal(0, self.context_sd[client], (n_rows, N_ACTIONS * N_OWN))

    def mean_rewards(self, client: str, contexts: FloatArray) -> FloatArray:
        """μ_c(x; a) for every action: x_aᵀθ_a, or k·sin(x_aᵀθ_a / k) for the one that differs."""
        blocks = contexts.reshape(-1, N_ACTIONS, N_OWN)
        linear: FloatArray = np.einsum("naq,aq->na", blocks, self.theta)
        if self.kind == "heterogeneous" and client == CLIENTS[0]:
            return BEND * np.sin(linear / BEND)
        return linear

    def logged(self, client: str, n_rows: int, draw: int = 0) -> LoggedData:
        """What a client would have logged under the uniform policy."""
        rng = generator_for(self.seed, client=client, purpose=f"logged {draw}")
        contexts = self.contexts(client, n_rows, rng)
        actions = rng.integers(0, N_ACTIONS, n_rows)
        means = self.mean_rewards(client, contexts)[np.arange(n_rows), actions]
        return LoggedData(
            contexts,
            actions,
            means + rng.normal(0, self.reward_sd[client], n_rows),
            action_names=self.action_names,
            feature_names=self.feature_names,
        )

    def all_logged(self, n_rows: int, draw: int = 0) -> dict[str, LoggedData]:
        """Every client's rows, n in all."""
        sizes = self.sizes(n_rows)
        return {client: self.logged(client, size, draw) for client, size in sizes.items()}

    def reference_policy(self) -> LinearPolicy:
        """argmax_a x_aᵀθ_a: optimal at every client whose rewards increase with that score."""
        parameters = np.zeros((N_ACTIONS, N_ACTIONS * N_OWN + 1))
        for action in range(N_ACTIONS):
            parameters[action, action * N_OWN : (action + 1) * N_OWN] = self.theta[action]
        return LinearPolicy(parameters, self.action_names, self.feature_names)

    def optimal_policy(self, client: str) -> "OptimalPolicy":
        """The best action in every context at this client, linear or not."""
        return OptimalPolicy(self, client)

    def value(self, policy: Decider, client: str, n_test: int = 50_000) -> float:
        """Q_c(π), from exact mean rewards on contexts that are the same for every policy."""
        rng = generator_for(self.seed, client=client, purpose="test")
        contexts = self.contexts(client, n_test, rng)
        codes = policy.decide(contexts)
        return float(self.mean_rewards(client, contexts)[np.arange(n_test), codes].mean())

    def regret(
        self,
        policy: Decider,
        weights: Weights,
        against: Decider | None = None,
        n_test: int = 50_000,
    ) -> float:
        """R_λ(π), or R_c with all weight on c, against the best action in every context.

        With `against`, the loss relative to that policy.
        """
        lost = 0.0
        for client, weight in weights.items():
            best = against or self.optimal_policy(client)
            gap = self.value(best, client, n_test) - self.value(policy, client, n_test)
            lost += weight * gap
        return lost


@dataclass(frozen=True, eq=False)
class OptimalPolicy:
    """argmax_a μ_c(x; a)."""

    world: PaperWorld
    client: str

    def decide(self, contexts: ArrayLike) -> IntArray:
        """The code of the best action in each context."""
        means = self.world.mean_rewards(self.client, np.asarray(contexts, np.float64))
        codes: IntArray = means.argmax(axis=1)
        return codes


def paper_world(
    kind: Kind = "heterogeneous", *, reading: Reading = "variance", seed: int = 0
) -> PaperWorld:
    """Draw θ ~ N(0, ω² I), and set every client's scales by the reading."""
    rng = generator_for(seed, purpose="theta")
    spread, scales = 1.0, dict.fromkeys(CLIENTS, 1.0)
    if kind == "heterogeneous":
        spread, scales = math.sqrt(5), {CLIENTS[0]: 10.0, **dict.fromkeys(CLIENTS[1:], 5.0)}
    if reading == "variance":
        scales = {client: math.sqrt(square) for client, square in scales.items()}
    return PaperWorld(
        kind=kind,
        seed=seed,
        theta=rng.normal(0, spread, (N_ACTIONS, N_OWN)),
        context_sd=scales,
        reward_sd=scales,
    )
