"""Sums over the rows that took each action, which show how well its outcomes are known."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.messages.combining import plain_sum
from fedopl.messages.learning.outcome_sums import OutcomeSums
from fedopl.solvers.nested_ridge import with_last
from fedopl.solvers.prediction_errors import outcome_noise, prediction_errors


@dataclass(frozen=True, eq=False, kw_only=True)
class TakenRows:
    """Every client's sums for outcome models, by name."""

    sums: Mapping[str, FloatArray]  # (n_folds, n_actions, n_terms + 2, n_terms + 2)
    squared_weights: Mapping[str, FloatArray]  # (n_folds, n_actions)

    @classmethod
    def of_answers(cls, answers: Mapping[str, OutcomeSums]) -> Self:
        """The sums as clients reported them."""
        return cls(
            sums={name: answer.sums for name, answer in answers.items()},
            squared_weights={name: answer.squared_weights for name, answer in answers.items()},
        )

    def of_folds(self, folds: Collection[int]) -> Self:
        """The sums over rows of these folds alone."""
        kept = list(folds)
        return replace(
            self,
            sums={name: own[kept] for name, own in self.sums.items()},
            squared_weights={name: own[kept] for name, own in self.squared_weights.items()},
        )

    def over_folds(self, client: str) -> tuple[FloatArray, FloatArray]:
        """One client's sums over all its rows, and its squared weights."""
        return self.sums[client].sum(axis=0), self.squared_weights[client].sum(axis=0)

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

    def _together(self, clients: Collection[str]) -> tuple[FloatArray, FloatArray]:
        told = sorted(self.sums.keys() & set(clients)) or sorted(self.sums)
        sums = plain_sum({name: self.over_folds(name)[0] for name in told})
        return sums, plain_sum({name: self.over_folds(name)[1] for name in told})
