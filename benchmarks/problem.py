"""One problem for all: d = 4, p = 40, X ~ N(0, I), A uniform, Y = x_aᵀθ_a + N(0, 1).

x_a is action a's own quarter of x. With fewer features than actions, it is one feature, which
several actions share. The truth is known, and so is the regret of a policy.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

N_ACTIONS, N_FEATURES, N_TEST = 4, 40, 100_000
TEST_SEED, SLOPE_SEED = 10**6, 10**6 + 1


class Rows(NamedTuple):
    """Logged rows."""

    contexts: np.ndarray  # (n_rows, n_features)
    actions: np.ndarray  # (n_rows,)
    rewards: np.ndarray  # (n_rows,)

    def save(self, folder: str | Path) -> None:
        """One .npy file for each array."""
        for name, values in self._asdict().items():
            np.save(Path(folder, f"{name}.npy"), values)

    @classmethod
    def load(cls, folder: str | Path) -> "Rows":
        """The way back."""
        return cls(*(np.load(Path(folder, f"{name}.npy")) for name in cls._fields))


def means(contexts: np.ndarray, n_actions: int = N_ACTIONS) -> np.ndarray:  # (n_rows, n_actions)
    """What each action would bring."""
    n_features = contexts.shape[1]
    width = max(n_features // n_actions, 1)
    slopes = np.random.default_rng(SLOPE_SEED).standard_normal((n_actions, width))
    if n_features < n_actions:
        return contexts[:, np.arange(n_actions) % n_features] * slopes[:, 0]
    used = contexts[:, : n_actions * width].reshape(len(contexts), n_actions, width)
    return np.einsum("naw,aw->na", used, slopes)


def draw(
    n_rows: int, seed: int = 0, n_actions: int = N_ACTIONS, n_features: int = N_FEATURES
) -> Rows:
    """Logged rows."""
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((n_rows, n_features))
    actions = rng.integers(0, n_actions, n_rows)
    rewards = rng.standard_normal(n_rows)
    rewards += means(contexts, n_actions)[np.arange(n_rows), actions]
    return Rows(contexts, actions, rewards)


def held_out_contexts(n_actions: int = N_ACTIONS, n_features: int = N_FEATURES) -> np.ndarray:
    """The rows on which regret is taken, the same for everybody."""
    rows = N_TEST if n_actions * n_features < 1000 else N_TEST // 10
    return np.random.default_rng(TEST_SEED).standard_normal((rows, n_features))


def regret(decisions: np.ndarray, contexts: np.ndarray, n_actions: int = N_ACTIONS) -> float:
    """Mean of what the best action would bring beyond the decided one."""
    worth = means(contexts, n_actions)
    return float((worth.max(axis=1) - worth[np.arange(len(worth)), decisions]).mean())
