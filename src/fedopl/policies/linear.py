"""Policies made of linear scores: one for each action, or one for each pair of actions."""

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.errors import OptionError
from fedopl.base.labels import quoted
from fedopl.base.schema import Encoding
from fedopl.policies.contexts import checked_contexts
from fedopl.policies.saving import save_policy

# The intercept of an action that no client could speak for: it is never the largest.
NEVER = -1e300


@dataclass(frozen=True, eq=False, repr=False)
class LinearPolicy:
    """π(x) = argmax_a φ(x, a)ᵀθ_a; ties go to the lowest code.

    Per-action blocks φ(x, a) = x_a are coefficients that are zero outside the action's block.
    """

    kind: ClassVar[str] = "linear"

    parameters: FloatArray  # (n_actions, n_features + 1), the intercept last
    action_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    encoding: Encoding | None = None  # how a table becomes features, where the study reads tables

    @property
    def coefficients(self) -> FloatArray:  # (n_actions, n_features)
        """How much each feature adds to each score."""
        return self.parameters[:, :-1]

    @property
    def intercepts(self) -> FloatArray:  # (n_actions,)
        """Each score where all features are zero."""
        return self.parameters[:, -1]

    def linear(self, contexts: ArrayLike) -> FloatArray:  # (n_rows, n_scores)
        """The linear scores themselves."""
        rows = checked_contexts(contexts, self.feature_names)
        if not self.coefficients.any():  # a constant arm: nothing to multiply
            return np.tile(self.intercepts, (len(rows), 1))
        return rows @ self.coefficients.T + self.intercepts

    def scores(self, contexts: ArrayLike) -> FloatArray:  # (n_rows, n_actions)
        """The score of each action; the largest is taken."""
        return self.linear(contexts)

    def decide(self, contexts: ArrayLike) -> IntArray:  # (n_rows,)
        """The code of the action to take in each context."""
        codes: IntArray = np.argmax(self.scores(contexts), axis=1)
        return codes

    def names(self, contexts: ArrayLike) -> NDArray[np.str_]:  # (n_rows,)
        """The name of the action to take in each context."""
        return np.array(self.action_names)[self.decide(contexts)]

    @property
    def score_names(self) -> list[str]:  # (n_scores,)
        """What each linear score speaks for."""
        return list(self.action_names)

    def save(self, path: str | Path) -> None:
        """Write the policy as JSON; every float is written so that it reads back the same."""
        save_policy(self, path)

    def content(self) -> dict[str, Any]:
        """What is saved of it beside actions and features."""
        scores = [
            {"of": name, "intercept": float(row[-1]), "coefficients": row[:-1].tolist()}
            for name, row in zip(self.score_names, self.parameters, strict=True)
        ]
        return {"scores": scores}

    def __repr__(self) -> str:
        sizes = f"{len(self.action_names)} actions, {len(self.feature_names)} features"
        return f"{type(self).__name__}({sizes})"


class PairwisePolicy(LinearPolicy):
    """Weighted all pairs: a score of zero or more is a win for the pair's lower code."""

    kind: ClassVar[str] = "pairwise"

    @property
    def score_names(self) -> list[str]:  # (n_pairs,)
        """What each linear score speaks for."""
        names = self.action_names
        return [f"{names[a]} over {names[b]}" for a, b in action_pairs(len(names))]

    def scores(self, contexts: ArrayLike) -> FloatArray:  # (n_rows, n_actions)
        """How many comparisons each action wins."""
        first_wins = self.linear(contexts) >= 0
        wins = np.zeros((len(first_wins), len(self.action_names)))
        for pair, (first, second) in enumerate(action_pairs(len(self.action_names))):
            wins[:, first] += first_wins[:, pair]
            wins[:, second] += ~first_wins[:, pair]
        return wins


def action_pairs(n_actions: int) -> list[tuple[int, int]]:
    """Every pair of action codes, the lower first, in a fixed order."""
    return list(combinations(range(n_actions), 2))


def constant_policy(
    action: str, action_names: tuple[str, ...], feature_names: tuple[str, ...]
) -> LinearPolicy:
    """Everybody gets the same action."""
    if action not in action_names:
        raise OptionError(f"policy: '{action}' is not an action; there are {quoted(action_names)}")
    parameters = np.zeros((len(action_names), len(feature_names) + 1))
    parameters[action_names.index(action), -1] = 1.0
    return LinearPolicy(parameters, action_names, feature_names)
