"""Worlds whose rewards are any function of contexts: their clients, and the truth about each.

Every client sees five numbers, X ~ N(m_c, I), and one feature of 0 or 1. A world knows the best of
all policies, the value of any policy, and the value of the logging policy. `named_worlds` defines
some.

The functions before `Site` draw such rewards at random, with one column for each action, and also
the features that an action depends on, and where the shape bends.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.seeds import generator_for
from fedopl.client.table.logged_data import LoggedData
from fedopl.simulation.paper import Decider

Shape = Callable[[FloatArray], FloatArray]  # contexts (n_rows, 6) → (n_rows, n_actions)


def linear(rng: np.random.Generator, n_actions: int, size: float = 0.5) -> Shape:
    """Slopes for every feature, and an intercept."""
    slopes = rng.normal(0, size, (n_actions, 7))
    return lambda x: x @ slopes[:, :-1].T + slopes[:, -1]


def smooth(rng: np.random.Generator, n_actions: int, size: float = 1.0) -> Shape:
    """A wave of one number, a square of another, a product of two, and slopes."""
    first, second, third, fourth = _features(rng, n_actions, 4)
    slopes = linear(rng, n_actions, 0.3 * size)
    frequencies, phases = rng.uniform(1, 2, n_actions), rng.uniform(0, 2 * np.pi, n_actions)
    centres = rng.normal(0, 0.5, n_actions)
    waves, squares, products = _sizes(rng, n_actions, 1.0, 0.4, 0.4) * size

    def shape(x: FloatArray) -> FloatArray:
        found: FloatArray = waves * np.sin(frequencies * x[:, first] + phases)
        found = found + squares * ((x[:, second] - centres) ** 2 - 1)
        found = found + products * x[:, third] * x[:, fourth]
        return found + slopes(x)

    return shape


def steps(rng: np.random.Generator, n_actions: int) -> Shape:
    """A threshold of one number, and a corner where two numbers both exceed theirs."""
    features = _features(rng, n_actions, 3)
    cuts = rng.normal(0, 0.6, (3, n_actions))
    alone, together = _sizes(rng, n_actions, 0.5, 1.0)

    def shape(x: FloatArray) -> FloatArray:
        one, two, three = (x[:, own] > cut for own, cut in zip(features, cuts, strict=True))
        found: FloatArray = alone * (one - 0.5) + together * (two & three)
        return found

    return shape


def triples(rng: np.random.Generator, n_actions: int) -> Shape:
    """A nonlinear product of three numbers, and slopes; no two of the numbers reveal it."""
    first, second, third = _features(rng, n_actions, 3)
    (sizes,) = _sizes(rng, n_actions, 1.2)
    slopes = linear(rng, n_actions, size=0.3)
    return lambda x: sizes * np.tanh(2 * x[:, first] * x[:, second] * x[:, third]) + slopes(x)


def xor(rng: np.random.Generator, n_actions: int) -> Shape:
    """The right action depends on whether two numbers lie on the same side of thresholds."""
    first, second = rng.permutation(5)[:2]
    cuts = rng.normal(0, 0.3, 2)
    sides = np.array([(0.0, 0.7, -0.7, 0.7)[action % 4] for action in range(n_actions)])

    def shape(x: FloatArray) -> FloatArray:
        same = (x[:, first] > cuts[0]) == (x[:, second] > cuts[1])
        found: FloatArray = np.where(same, 1.0, -1.0)[:, None] * sides
        return found

    return shape


def _features(rng: np.random.Generator, n_actions: int, how_many: int) -> np.ndarray:
    """For every action, `how_many` different ones of the five numbers."""
    return np.stack([rng.permutation(5)[:how_many] for _ in range(n_actions)], axis=1)


def _sizes(rng: np.random.Generator, n_actions: int, *typical: float) -> FloatArray:
    """Random sizes close to the typical ones, up or down."""
    shape = (len(typical), n_actions)
    signs = rng.choice([-1.0, 1.0], shape)
    found: FloatArray = signs * rng.uniform(0.75, 1.25, shape) * np.array(typical)[:, None]
    return found


N_NUMBERS = 5


@dataclass(frozen=True, eq=False, kw_only=True)
class Site:
    """One client's distribution; rewards and leanings are functions of contexts."""

    context_mean: FloatArray  # (n_numbers,)
    share_of_ones: float  # of the last feature
    rewards: Shape  # μ_c(x; a), (n_rows, n_actions)
    leaning: Shape  # the logging policy is their softmax, kept above the least propensity
    reward_sd: float = 1.0
    heavy_tail: float | None = None  # degrees of freedom of Student's t; Gaussian if not said


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ShapedWorld:
    """Clients of equal size, and the truth about each."""

    sites: Mapping[str, Site]
    n_actions: int
    seed: int
    least_propensity: float
    rows: int | None = None  # of each client, where the world is about having so few

    @property
    def clients(self) -> tuple[str, ...]:
        """The clients' names, in order."""
        return tuple(self.sites)

    def contexts(
        self, client: str, n_rows: int, rng: np.random.Generator
    ) -> FloatArray:  # (n_rows, n_features)
        """X ~ N(m_c, I), and a last feature that is 1 with the client's own probability."""
        site = self.sites[client]
        numbers = site.context_mean + rng.standard_normal((n_rows, N_NUMBERS))
        return np.column_stack([numbers, rng.random(n_rows) < site.share_of_ones])

    def mean_rewards(self, client: str, contexts: FloatArray) -> FloatArray:  # (n_rows, n_actions)
        """μ_c(x; a)."""
        return self.sites[client].rewards(contexts)

    def propensities(self, client: str, contexts: FloatArray) -> FloatArray:  # (n_rows, n_actions)
        """e_c(x; a), the softmax of the leanings, mixed with chance."""
        leanings = self.sites[client].leaning(contexts)
        odds = np.exp(leanings - leanings.max(axis=1, keepdims=True))
        chances = odds / odds.sum(axis=1, keepdims=True)
        mixed: FloatArray = (
            self.least_propensity + (1 - self.n_actions * self.least_propensity) * chances
        )
        return mixed

    def logged(self, client: str, n_rows: int, draw: int = 0) -> LoggedData:
        """Rows that a client could have logged; another draw is another sample of the world."""
        site = self.sites[client]
        rng = generator_for(self.seed, client=client, purpose=f"logged {draw}")
        contexts = self.contexts(client, n_rows, rng)
        chances = self.propensities(client, contexts)
        # log e + Gumbel noise is largest at an action as often as e says.
        actions = np.argmax(np.log(chances) + rng.gumbel(size=chances.shape), axis=1)
        noise = (
            rng.standard_t(site.heavy_tail, n_rows)
            if site.heavy_tail
            else rng.standard_normal(n_rows)
        )
        means = self.mean_rewards(client, contexts)[np.arange(n_rows), actions]
        return LoggedData(
            contexts,
            actions,
            means + site.reward_sd * noise,
            action_names=tuple(f"a{action + 1}" for action in range(self.n_actions)),
        )

    def all_logged(self, n_rows: int, draw: int = 0) -> dict[str, LoggedData]:
        """Every client's rows: `n_rows` each, unless the world sets the number."""
        return {name: self.logged(name, self.rows or n_rows, draw) for name in self.clients}

    def all_known(self, n_rows: int, draw: int = 0) -> dict[str, LoggedData]:
        """The same rows with the propensities by which their actions were drawn."""
        return {
            name: LoggedData(
                data.contexts,
                data.actions,
                data.rewards,
                self.propensities(name, data.contexts),
                action_names=data.action_names,
            )
            for name, data in self.all_logged(n_rows, draw).items()
        }

    def decide(self, contexts: ArrayLike) -> IntArray:
        """The best action of all: argmax_a Σ_c p(c | x)·μ_c(x; a).

        A policy does not see which client a context comes from, only how likely each client is. If
        rewards differ between clients, it earns less than each client's own best policy would.
        """
        x = np.asarray(contexts, np.float64)
        weighted = [
            self._density(name, x)[:, None] * self.mean_rewards(name, x) for name in self.clients
        ]
        best: IntArray = np.sum(weighted, axis=0).argmax(axis=1)
        return best

    def values(self, policy: Decider, n_test: int = 20_000) -> dict[str, float]:
        """Q_c(π) = E[μ_c(X; π(X))] by client, over fresh contexts and without noise."""
        found = {}
        for name in self.clients:
            contexts = self.test_contexts(name, n_test)
            worth = self.mean_rewards(name, contexts)
            found[name] = float(worth[np.arange(n_test), policy.decide(contexts)].mean())
        return found

    def logging_values(self, n_test: int = 20_000) -> dict[str, float]:
        """E[Σ_a e_c(X; a)·μ_c(X; a)] by client: the value of the logging policy."""
        found = {}
        for name in self.clients:
            contexts = self.test_contexts(name, n_test)
            worth = self.propensities(name, contexts) * self.mean_rewards(name, contexts)
            found[name] = float(worth.sum(axis=1).mean())
        return found

    def losses(self, n_test: int = 20_000) -> tuple[FloatArray, FloatArray]:
        """Fresh contexts of all clients, and each action's loss there against the best policy.

        The means are the true ones, so a policy's regret is just a mean over contexts.
        """
        asked = [self.test_contexts(name, n_test) for name in self.clients]
        contexts = np.concatenate(asked)
        worth = np.concatenate(
            [self.mean_rewards(name, x) for name, x in zip(self.clients, asked, strict=True)]
        )
        return contexts, worth[np.arange(len(worth)), self.decide(contexts)][:, None] - worth

    def regret(self, policy: Decider, n_test: int = 20_000) -> float:
        """The mean loss of a policy against the best one; all clients count the same."""
        contexts, lost = self.losses(n_test)
        return float(lost[np.arange(len(lost)), policy.decide(contexts)].mean())

    def test_contexts(self, client: str, n_test: int = 20_000) -> FloatArray:
        """The fresh contexts on which every policy is judged."""
        return self.contexts(
            client, n_test, generator_for(self.seed, client=client, purpose="test")
        )

    def _density(self, client: str, contexts: FloatArray) -> FloatArray:  # (n_rows,)
        """The density of these contexts at a client, up to a factor that is the same for all."""
        site = self.sites[client]
        square = ((contexts[:, :N_NUMBERS] - site.context_mean) ** 2).sum(axis=1)
        ones = np.where(contexts[:, N_NUMBERS] > 0, site.share_of_ones, 1 - site.share_of_ones)
        density: FloatArray = ones * np.exp(-square / 2)
        return density

    def __repr__(self) -> str:
        return f"ShapedWorld({len(self.sites)} clients, {self.n_actions} actions)"
