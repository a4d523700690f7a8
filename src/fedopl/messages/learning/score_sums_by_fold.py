"""Sums of scores fold by fold, from which policies are learned without each of the folds."""

from collections.abc import Collection
from dataclasses import replace
from typing import Annotated, Self

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.combining import PerClient
from fedopl.messages.learning.score_sums import ScoreSums, fault_in_score_sums
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.plausibility import CORNER_TOLERANCE
from fedopl.study.study import Study


@message
class ScoreSumsByFold(Message, code=83):
    """The means in `ScoreSums` over each fold's rows, and each fold's share of all weight."""

    weights: Annotated[Array, (Axis.FOLDS,), PerClient]
    grams: Annotated[Array, (Axis.FOLDS, Axis.GRAMS, Axis.FEATURES, Axis.FEATURES), PerClient]
    products: Annotated[Array, (Axis.FOLDS, Axis.ACTIONS, Axis.FEATURES), PerClient]
    squares: Annotated[Array, (Axis.FOLDS, Axis.ACTIONS), PerClient]
    shares: Annotated[Array, (Axis.FOLDS, Axis.ACTIONS), PerClient]

    def without_sums(self) -> Self:
        """The answer of a client that adds no sums of terms: zeros, and no share of rows."""
        names = ("grams", "products", "squares", "shares")
        return replace(self, **{name: np.zeros_like(getattr(self, name)) for name in names})

    def of_fold(self, fold: int) -> ScoreSums:
        """The sums of one fold's rows."""
        return ScoreSums(
            grams=self.grams[fold],
            products=self.products[fold],
            squares=self.squares[fold],
            shares=self.shares[fold],
        )

    def without(self, fold: int) -> ScoreSums:
        """The sums of all rows except this fold's."""
        return self.of_folds([other for other in range(len(self.weights)) if other != fold])

    def of_folds(self, folds: Collection[int]) -> ScoreSums:
        """The sums of all rows of these folds; zeros if no row is in any of them."""
        weights = np.where(np.isin(np.arange(len(self.weights)), list(folds)), self.weights, 0.0)
        total = weights.sum()
        return self._pooled(weights / total if total > 0 else weights)

    def _pooled(self, weights: FloatArray) -> ScoreSums:
        """Means over rows that have a score; folds count by the weight of those rows."""
        by_action = weights[:, None] * self.shares
        shares = by_action.sum(axis=0)
        own = np.divide(by_action, shares, out=np.zeros_like(by_action), where=shares > 0)
        per_gram = own if self.grams.shape[1] > 1 else own[:, :1]
        return ScoreSums(
            grams=np.einsum("kg,kgij->gij", per_gram, self.grams),
            products=np.einsum("ka,kai->ai", own, self.products),
            squares=(own * self.squares).sum(axis=0),
            shares=shares,
        )


@message
class SumByFold(Query[ScoreSumsByFold], code=20, asked=Asked.EACH):
    """Ask for the sums of the existing scores, fold by fold."""

    title = "Sums of scores by fold"
    content = "the means of sums of scores, over each fold"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether policies are learned without a fold: to be valued on it, or chosen by it."""
        tries = study.mixture.kind == "path" and study.policy.kind == "linear"
        return study.evaluation.is_cross_fitted or study.chooses_terms or tries

    def fault_in(self, answer: ScoreSumsByFold, study: Study, n_rows: int) -> str | None:
        """Check that each fold's sums can be those of some rows, and folds make up all rows."""
        if answer.weights.min() < 0 or abs(answer.weights.sum() - 1) > CORNER_TOLERANCE:
            return "the folds' weights do not add up to one"
        if answer.weights.max() >= 1:
            return "all of its rows are in one fold"
        for fold in range(len(answer.weights)):
            if fault := fault_in_score_sums(self, answer.of_fold(fold), study, n_rows):
                return f"fold {fold}: {fault}"
        return None
