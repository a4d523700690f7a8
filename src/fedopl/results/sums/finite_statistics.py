"""Values of all candidates at all clients, which give the best one for any mixture."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.combining import weighted_sum
from fedopl.messages.evaluation.policy_values import Values
from fedopl.results.sums.any_mixture import Solved, nonzero, only_of
from fedopl.study.mixture import Weights, renormalised


@dataclass(frozen=True, eq=False, kw_only=True)
class FiniteStatistics:
    """The value of every candidate at every client, on the rows that the choice uses."""

    names: tuple[str, ...]
    means: dict[str, FloatArray]  # by client, (n_candidates,)
    variances: dict[str, FloatArray] = field(default_factory=dict)  # of these
    caution: float = 0.0  # standard errors that a candidate's value is judged less
    costs: Mapping[str, float] = field(default_factory=dict)  # means by candidate, if they spend

    @classmethod
    def of_answers(
        cls, names: Sequence[str], answers: Mapping[str, Values], caution: float = 0.0
    ) -> Self:
        """The statistics from answers about all candidates in this order."""
        told, n = sorted(answers.items()), len(names)
        means = {client: values.means[:n] for client, values in told}
        variances = {client: np.diagonal(values.covariances)[:n] for client, values in told}
        return cls(names=tuple(names), means=means, variances=variances, caution=caution)

    @property
    def clients(self) -> list[str]:
        """The clients that reported values."""
        return sorted(self.means)

    def restricted(self, names: Collection[str]) -> Self:
        """The values of these clients alone."""
        return replace(self, means=dict(only_of(self.means, names)))

    def solve(self, weights: Weights) -> str:
        """The candidate with the largest value in the mixture, less a number of standard errors."""
        return self.names[int(np.argmax(self.judged(weights)))]

    def worth(self, weights: Weights) -> list[float]:
        """What those candidates are worth whose costs are known."""
        judged = dict(zip(self.names, self.judged(weights).tolist(), strict=True))
        return [judged[name] for name in self.costs]

    def judged(self, weights: Weights) -> FloatArray:  # (n_candidates,)
        """The value of each candidate in the mixture, less a number of standard errors."""
        return self._judged(renormalised(weights, self.means.keys()), self.caution)

    def solve_contrast(self, signed: Mapping[str, float]) -> str:
        """The candidate with the largest Σ_c s_c·Q̂_c."""
        return self.names[int(np.argmax(self._judged(nonzero(signed, self.means))))]

    def value(self, client: str, policy: Solved) -> float:
        """The value of a candidate at a client."""
        return float(self.means[client][self.names.index(str(policy))])

    def _judged(self, signed: Weights, caution: float = 0.0) -> FloatArray:
        judged = weighted_sum(signed, {name: self.means[name] for name in signed})
        if caution:
            squares = {name: weight**2 for name, weight in signed.items()}
            own = {name: self.variances[name] for name in signed}
            judged -= caution * np.sqrt(weighted_sum(squares, own))
        return judged
