"""Values of all candidates at all clients, from which the best for any mixture is picked."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.combining import weighted_sum
from fedopl.messages.evaluation.policy_values import Values
from fedopl.results.sums.any_mixture import Solved, of_clients
from fedopl.results.sums.signed_weights import nonzero
from fedopl.study.mixture import Weights, renormalised


@dataclass(frozen=True, eq=False, kw_only=True)
class FiniteStatistics:
    """What every candidate is worth to every client, on the rows it is chosen by."""

    names: tuple[str, ...]
    means: dict[str, FloatArray]  # by client, (n_candidates,)

    @classmethod
    def of_answers(cls, names: Sequence[str], answers: Mapping[str, Values]) -> Self:
        """From answers about all candidates in this order."""
        means = {client: values.means[: len(names)] for client, values in sorted(answers.items())}
        return cls(names=tuple(names), means=means)

    @property
    def clients(self) -> list[str]:
        """Those who reported values."""
        return sorted(self.means)

    def restricted(self, names: Collection[str]) -> Self:
        """The values of these clients alone."""
        return replace(self, means=of_clients(self.means, names))

    def solve(self, weights: Weights) -> str:
        """The candidate of the largest value in the mixture."""
        return self._best(renormalised(weights, self.means.keys()))

    def solve_contrast(self, signed: Mapping[str, float]) -> str:
        """The candidate of the largest Σ_c s_c·Q̂_c."""
        return self._best(nonzero(signed, self.means))

    def value(self, client: str, policy: Solved) -> float:
        """What a candidate is worth to a client, by its name."""
        return float(self.means[client][self.names.index(str(policy))])

    def _best(self, signed: Weights) -> str:
        counting = {name: self.means[name] for name in signed}
        return self.names[int(np.argmax(weighted_sum(signed, counting)))]
