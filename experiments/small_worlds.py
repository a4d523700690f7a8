"""Small worlds whose truth is known, for tests and experiments.

Every client has Gaussian contexts, rewards linear in them, and a softmax logging policy. In
`alike_world` all clients are the same and log uniformly. Each other function takes a world and
changes one thing about it, so several changes can be combined:

    world = action_missing(confounded(alike_world(seed=3)), "client 1", "a2")

Any client's parts can be inspected: `world.truths["client 1"].slopes`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import OptionError
from fedopl.base.labels import quoted
from fedopl.base.seeds import generator_for
from fedopl.client.table.logged_data import LoggedData
from fedopl.policies.linear import LinearPolicy
from fedopl.simulation.paper import Decider
from fedopl.study.mixture import Weights


@dataclass(frozen=True, eq=False, kw_only=True)
class Truth:
    """One client's distribution: X ~ N(m, I), A ~ softmax(leaning of X), Y ~ N(slope of X, ρ²)."""

    context_mean: FloatArray  # (n_features,)
    leaning: FloatArray  # (n_actions, n_features + 1), the intercept last; −∞ there is never
    slopes: FloatArray  # (n_actions, n_features + 1), the intercept last
    reward_sd: float


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class World:
    """Clients, and the truth about each."""

    truths: Mapping[str, Truth]
    seed: int
    known_propensities: bool = False  # whether the logs carry each action's propensity

    @property
    def clients(self) -> tuple[str, ...]:
        """The clients' names, in order."""
        return tuple(self.truths)

    @property
    def action_names(self) -> tuple[str, ...]:
        """a₁ … a_d."""
        return tuple(f"a{action + 1}" for action in range(len(self._anyone.slopes)))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """x₁ … x_p."""
        return tuple(f"x{feature + 1}" for feature in range(len(self._anyone.context_mean)))

    def contexts(
        self, client: str, n_rows: int, rng: np.random.Generator
    ) -> FloatArray:  # (n_rows, n_features)
        """X ~ N(m_c, I)."""
        mean = self.truths[client].context_mean
        return mean + rng.standard_normal((n_rows, len(mean)))

    def mean_rewards(self, client: str, contexts: FloatArray) -> FloatArray:  # (n_rows, n_actions)
        """μ_c(x; a), linear in x."""
        return _linear(self.truths[client].slopes, contexts)

    def propensities(self, client: str, contexts: FloatArray) -> FloatArray:  # (n_rows, n_actions)
        """e_c(x; a), the softmax of the leanings."""
        leanings = _linear(self.truths[client].leaning, contexts)
        odds = np.exp(leanings - leanings.max(axis=1, keepdims=True))
        chances: FloatArray = odds / odds.sum(axis=1, keepdims=True)
        return chances

    def logged(self, client: str, n_rows: int, draw: int = 0) -> LoggedData:
        """Rows that a client could have logged; another draw is another sample of the world."""
        truth = self.truths[client]
        rng = generator_for(self.seed, client=client, purpose=f"logged {draw}")
        contexts = self.contexts(client, n_rows, rng)
        # The largest of leaning + Gumbel noise is a draw from the softmax, and never one at −∞.
        leanings = _linear(truth.leaning, contexts)
        actions = np.argmax(leanings + rng.gumbel(size=leanings.shape), axis=1)
        means = self.mean_rewards(client, contexts)[np.arange(n_rows), actions]
        return LoggedData(
            contexts,
            actions,
            means + rng.normal(0, truth.reward_sd, n_rows),
            self.propensities(client, contexts) if self.known_propensities else None,
            action_names=self.action_names,
            feature_names=self.feature_names,
        )

    def optimal_policy(self, weights: Weights | None = None) -> LinearPolicy:
        """argmax_a Σ_c λ_c·μ_c(x; a), the best of all policies under the mixture (default 1/C).

        It is the best for one of two reasons. Either all clients have the same contexts, so a
        context does not reveal its client; or all have the same rewards, so its client does not
        matter.
        """
        if weights is None:
            weights = dict.fromkeys(self.clients, 1 / len(self.truths))
        present = {name: self.truths[name] for name in sorted(weights) if weights[name] > 0}
        if not present:
            raise OptionError("weights: expected a client with a weight above 0, came none")
        slopes = np.stack([truth.slopes for truth in present.values()])
        means = np.stack([truth.context_mean for truth in present.values()])
        if (slopes == slopes[0]).all():
            return LinearPolicy(slopes[0], self.action_names, self.feature_names)
        if (means != means[0]).any():
            raise OptionError(
                "optimal_policy: no linear policy is optimal where contexts and rewards both "
                "differ between clients; give all the weight to one of them"
            )
        shares = np.array([weights[name] for name in present])
        average = np.einsum("c,caf->af", shares, slopes)
        return LinearPolicy(average, self.action_names, self.feature_names)

    def value(self, policy: Decider, client: str, n_test: int = 10_000) -> float:
        """Q_c(π) = E[μ_c(X; π(X))], over fresh contexts and without noise in the rewards."""
        # All clients' test contexts share their noise. So if contexts do not differ between
        # clients, no policy beats the optimal one, even on the contexts that happen to be drawn.
        contexts = self.contexts(client, n_test, generator_for(self.seed, purpose="test"))
        means = self.mean_rewards(client, contexts)
        return float(means[np.arange(n_test), policy.decide(contexts)].mean())

    def regret(self, policy: Decider, weights: Weights, n_test: int = 10_000) -> float:
        """R_λ(π) = Σ_c λ_c·(Q_c(π*_λ) − Q_c(π)), with π*_λ the optimal policy for these weights."""
        best = self.optimal_policy(weights)
        return sum(
            weights[name] * (self.value(best, name, n_test) - self.value(policy, name, n_test))
            for name in sorted(weights)
            if weights[name] > 0
        )

    @property
    def _anyone(self) -> Truth:
        return next(iter(self.truths.values()))

    def __repr__(self) -> str:
        sizes = (len(self.truths), len(self.action_names), len(self.feature_names))
        return "World({} clients, {} actions, {} features)".format(*sizes)


def alike_world(
    n_clients: int = 3,
    *,
    n_actions: int = 3,
    n_features: int = 4,
    reward_sd: float = 1.0,
    seed: int = 0,
) -> World:
    """The simplest world: X ~ N(0, I), uniform logging, the same slopes ~ N(0, 1) everywhere."""
    if min(n_clients, n_actions - 1, n_features) < 1:
        raise OptionError(
            "world: expected at least one client, two actions and one feature, "
            f"came {n_clients}, {n_actions} and {n_features}"
        )
    everybody = Truth(
        context_mean=np.zeros(n_features),
        leaning=np.zeros((n_actions, n_features + 1)),
        slopes=generator_for(seed, purpose="slopes").standard_normal((n_actions, n_features + 1)),
        reward_sd=reward_sd,
    )
    # Names of one length sort in the order of their numbers.
    width = len(str(n_clients))
    names = (f"client {number + 1:0{width}}" for number in range(n_clients))
    return World(truths=dict.fromkeys(names, everybody), seed=seed)


def confounded(world: World, strength: float = 0.3, *, known_propensities: bool = False) -> World:
    """Log an action more often where it gains more, as if by an expert in a hurry."""
    truths = {
        client: replace(truth, leaning=truth.leaning + strength * truth.slopes)
        for client, truth in world.truths.items()
    }
    known = known_propensities or world.known_propensities
    return replace(world, truths=truths, known_propensities=known)


def action_missing(world: World, client: str, action: str) -> World:
    """One client never took one action, though the action would gain as much there as elsewhere."""
    if client not in world.truths or action not in world.action_names:
        raise OptionError(
            f"world: no action '{action}' at '{client}'; the actions are "
            f"{quoted(world.action_names)}, the clients {quoted(world.clients)}"
        )
    leaning = world.truths[client].leaning.copy()
    leaning[world.action_names.index(action)] = np.append(np.zeros(leaning.shape[1] - 1), -np.inf)
    if np.isneginf(leaning[:, -1]).all():
        raise OptionError(f"world: '{action}' is the last action '{client}' still takes")
    changed = replace(world.truths[client], leaning=leaning)
    return replace(world, truths={**world.truths, client: changed})


def covariate_shift(world: World, size: float = 1.0) -> World:
    """Give every client other contexts, m_c + size·N(0, I); all else stays."""
    return _shifted(world, "context_mean", size, "covariate shift")


def propensity_shift(world: World, size: float = 0.5) -> World:
    """Give every client other logging leanings, plus size·N(0, 1) each; all else stays."""
    return _shifted(world, "leaning", size, "propensity shift")


def outcome_shift(world: World, size: float = 0.5) -> World:
    """Give every client other slopes of rewards, θ + size·N(0, 1) each; all else stays."""
    return _shifted(world, "slopes", size, "outcome shift")


def many_clients(n_clients: int = 1000, heterogeneity: float = 0.5, *, seed: int = 0) -> World:
    """Many clients around one centre: θ_c = θ + h·N(0, 1)."""
    return outcome_shift(alike_world(n_clients, seed=seed), heterogeneity)


def _shifted(world: World, part: str, size: float, purpose: str) -> World:
    truths = {}
    for client, truth in world.truths.items():
        rng = generator_for(world.seed, client=client, purpose=purpose)
        before = getattr(truth, part)
        moved = before + size * rng.standard_normal(before.shape)
        truths[client] = replace(truth, **{part: moved})
    return replace(world, truths=truths)


def _linear(parameters: FloatArray, contexts: FloatArray) -> FloatArray:  # (n_rows, n_actions)
    return contexts @ parameters[:, :-1].T + parameters[:, -1]
