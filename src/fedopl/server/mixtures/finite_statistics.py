"""Candidates as something to solve for: the best of them for any mixture, from values once told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.vocabulary import N_OWN_CANDIDATES, Values
from fedopl.server.aggregate.aggregation import weighted_sum
from fedopl.server.mixtures.valued_groups import Ask
from fedopl.study.mixture import Weights, renormalised


@dataclass(frozen=True, eq=False, kw_only=True)
class FiniteStatistics:
    """What every candidate is worth to every client, on rows to choose by."""

    names: tuple[str, ...]
    means: dict[str, FloatArray]  # by client, (n_candidates,)

    def solve(self, weights: Weights) -> str:
        """The candidate of the largest value in the mixture."""
        return self.best(renormalised(weights, self.means.keys()))

    def best(self, signed: Mapping[str, float]) -> str:
        """The candidate of the largest Σ_c s_c·Q̂_c, whatever the signs."""
        return self.names[int(np.argmax(weighted_sum(signed, self._of(signed))))]

    def value(self, client: str, name: str) -> float:
        """What a candidate is worth to a client."""
        return float(self.means[client][self.names.index(name)])

    def _of(self, clients: Mapping[str, float]) -> dict[str, FloatArray]:
        return {name: self.means[name] for name in clients}


def finite_statistics(names: Sequence[str], answers: Mapping[str, Values]) -> FiniteStatistics:
    """From answers about all candidates in this order."""
    means = {name: told.means[: len(names)] for name, told in sorted(answers.items())}
    return FiniteStatistics(names=tuple(names), means=means)


def picking(names: Sequence[str], answers: Mapping[str, Values]) -> Ask:
    """Values of any of the candidates, out of answers about all of them: nobody is asked."""
    own = range(len(names), len(names) + N_OWN_CANDIDATES)

    def pick(wanted: Sequence[object]) -> Mapping[str, Values]:
        places = [*(names.index(str(name)) for name in wanted), *own]
        return {client: _picked(told, places) for client, told in sorted(answers.items())}

    return pick


def _picked(told: Values, places: list[int]) -> Values:
    means, covariances = told.means[places], told.covariances[np.ix_(places, places)]
    return replace(told, means=means, covariances=covariances)
