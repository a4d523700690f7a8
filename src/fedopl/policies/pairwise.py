"""Pairwise policies: one linear score for each pair of actions; the most wins decide."""

from itertools import combinations
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import FloatArray
from fedopl.policies.export.target import Target, Term
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.policy import Policy


class PairwisePolicy(LinearPolicy):
    """Weighted all pairs: a score of zero or more is a win for the pair's lower code."""

    kind: ClassVar[str] = "pairwise"
    message_field: ClassVar[str] = "pairwise"
    message_axes: ClassVar[tuple[str, ...]] = ("pairwise policies", "pairs", "parameters")

    @classmethod
    def scores_of(cls, action_names: tuple[str, ...]) -> list[str]:  # (n_pairs,)
        """The pair that each linear score compares, with the favoured action first."""
        pairs = action_pairs(len(action_names))
        return [f"{action_names[a]} over {action_names[b]}" for a, b in pairs]

    def scores(self, contexts: ArrayLike) -> FloatArray:  # (n_rows, n_actions)
        """How many comparisons each action wins."""
        first_wins = self.linear(contexts) >= 0
        wins = np.zeros((len(first_wins), len(self.action_names)))
        for pair, (first, second) in enumerate(action_pairs(len(self.action_names))):
            wins[:, first] += first_wins[:, pair]
            wins[:, second] += ~first_wins[:, pair]
        return wins

    def worth(self, contexts: ArrayLike) -> FloatArray:  # (n_rows, n_actions)
        """NaN everywhere: a pairwise policy only compares actions two by two."""
        return Policy.worth(self, contexts)

    def written_in(self, target: Target[Term]) -> Term:
        """The action with the most wins, in another language."""
        wins: list[list[Term]] = [[] for _ in self.action_names]
        for score, (first, second) in zip(
            self.linear_in(target), action_pairs(len(wins)), strict=True
        ):
            first_wins = target.at_least(score, 0.0)
            wins[first].append(first_wins)
            wins[second].append(target.negated(first_wins))
        return target.largest(dict(enumerate(target.counts(self.action_names, wins))))

    @property
    def never_chosen(self) -> tuple[str, ...]:
        """Always empty: an action without scores is not excluded, but loses every comparison."""
        return ()

    def contrasts(self) -> tuple[list[tuple[str, ...]], FloatArray]:  # (n_pairs, n_features)
        """Every pair of actions, and its coefficients."""
        names = self.action_names
        pairs = action_pairs(len(names))
        return [(names[a], names[b]) for a, b in pairs], self.coefficients


def action_pairs(n_actions: int) -> list[tuple[int, int]]:
    """Every pair of action codes, the lower first, in a fixed order."""
    return list(combinations(range(n_actions), 2))
