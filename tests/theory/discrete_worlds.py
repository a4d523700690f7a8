"""Small discrete worlds: every distribution is an array, and every claim can be enumerated."""

import itertools
from dataclasses import dataclass

import numpy as np

OUTCOMES = np.array(list(itertools.product((-1.0, 0.5), repeat=2)))  # (4, 2): Y(a₁), Y(a₂)
POLICIES = np.array(list(itertools.product((0, 1), repeat=3)))  # (8, 3): one action per context


@dataclass(frozen=True)
class World:
    """Three clients over three contexts, two actions and pairs of potential outcomes."""

    contexts: np.ndarray  # (3, 3)  p(x) by client
    propensities: np.ndarray  # (3, 3, 2)  e(a|x) by client
    outcomes: np.ndarray  # (3, 3, 4)  p(y⃗|x) by client
    weights: np.ndarray  # (3,)  λ

    @property
    def joint(self):
        """p(x, a, y⃗) by client, flat."""
        cells = (
            self.contexts[:, :, None, None]
            * self.propensities[:, :, :, None]
            * self.outcomes[:, :, None, :]
        )
        return cells.reshape(3, -1)

    @property
    def without_actions(self):
        """p(x, y⃗) by client, flat."""
        return (self.contexts[:, :, None] * self.outcomes).reshape(3, -1)

    @property
    def values(self):
        """Q_c(π), (3, 8)."""
        means = self.outcomes @ OUTCOMES  # (3, 3, 2)
        return np.array(
            [[self.contexts[c] @ means[c, range(3), pi] for pi in POLICIES] for c in range(3)]
        )

    @property
    def second_moment(self):
        """V = max_c sup_π E[Γ(π(X))²], with E[Γ(a)²|x] = μ² + Var(Y(a)|x)/e(a|x)."""
        means, squares = self.outcomes @ OUTCOMES, self.outcomes @ OUTCOMES**2
        moments = means**2 + (squares - means**2) / self.propensities
        return max(self.contexts[c] @ moments[c, range(3), pi] for c in range(3) for pi in POLICIES)


def draw_world(seed, spread):
    """A world whose clients are the further apart the larger the spread."""
    rng = np.random.default_rng(seed)

    def near(shape):
        base = rng.dirichlet(np.full(shape[-1], 4.0), size=(1, *shape[1:-1]))
        noisy = base * np.exp(spread * rng.normal(size=shape))
        return noisy / noisy.sum(axis=-1, keepdims=True)

    return World(
        contexts=near((3, 3)),
        propensities=near((3, 3, 2)),
        outcomes=near((3, 3, 4)),
        weights=rng.dirichlet(np.ones(3)),
    )
