"""Sums over the rows that took each action, which show how well its outcomes are known."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.messages.combining import plain_sum
from fedopl.messages.learning.outcome_sums import OutcomeSums
from fedopl.solvers.nested_ridge import with_last
from fedopl.solvers.prediction_errors import outcome_noise, prediction_errors


class Taken(NamedTuple):
    """One client's sums for outcome models."""

    sums: FloatArray  # (n_folds, n_actions, n_terms + 2, n_terms + 2)
    squared_weights: FloatArray  # (n_folds, n_actions)


@dataclass(frozen=True, eq=False)
class TakenRows:
    """Every client's sums for outcome models, by name."""

    by_client: Mapping[str, Taken]

    @classmethod
    def of_answers(cls, answers: Mapping[str, OutcomeSums]) -> Self:
        """The sums as clients reported them."""
        return cls({name: Taken(own.sums, own.squared_weights) for name, own in answers.items()})

    def of_folds(self, folds: Collection[int]) -> Self:
        """The sums over rows of these folds alone."""
        kept = list(folds)
        each = self.by_client.items()
        return type(self)({name: Taken(*(part[kept] for part in own)) for name, own in each})

    def over_folds(self, client: str) -> Taken:
        """One client's sums over all its rows, and its squared weights."""
        return Taken(*(part.sum(axis=0) for part in self.by_client[client]))

    def errors(
        self, clients: Collection[str], used: IntArray
    ) -> FloatArray:  # (n_actions, n_columns, n_columns)
        """R_a, with |R_a b(x)| the standard error of an outcome, by models on these terms.

        Rows of all these clients count the same, as they do in outcome models. A client that could
        not release its sums adds nothing. If none of them could, others' rows are used, as others'
        models are.
        """
        sums, squared = self._together(clients)
        kept = with_last(used, sums.shape[-1], last=2)
        narrow = prediction_errors(sums[:, kept[:, None], kept], squared)
        wide = np.zeros((len(sums), sums.shape[-1] - 1, sums.shape[-1] - 1))
        places = kept[:-1]
        wide[:, places[:, None], places] = narrow
        return wide

    def noise(self, clients: Collection[str]) -> float:
        """σ²: the variance of these clients' outcomes about linear models of them."""
        return outcome_noise(*self._together(clients))

    def _together(self, clients: Collection[str]) -> Taken:
        told = sorted(self.by_client.keys() & set(clients)) or sorted(self.by_client)
        own = {name: self.over_folds(name) for name in told}
        return Taken(*(plain_sum({name: own[name][part] for name in told}) for part in (0, 1)))
