"""Sums of scores that linear policies are solved from: of all rows, by fold, and by pair.

The spread of scores within a row gives the likelihood of personal policies.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Annotated, Any, Self

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.combining import PerClient, WeightedMean
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.plausibility import CORNER_TOLERANCE, bordered, fault_in_moments
from fedopl.study.study import Study

_SUMS = ("grams", "products", "squares", "shares")


@message
class ScoreSums(Message, code=68):
    """Weighted means over rows: φφᵀ, φ·Γ̂(a) and Γ̂(a)², and the share of rows behind each.

    They are kept by client, so that the policy of any mixture can be solved for again.
    """

    grams: Annotated[Array, (Axis.GRAMS, Axis.FEATURES, Axis.FEATURES), PerClient]
    products: Annotated[Array, (Axis.ACTIONS, Axis.FEATURES), PerClient]
    squares: Annotated[Array, (Axis.ACTIONS,), PerClient]
    shares: Annotated[Array, (Axis.ACTIONS,), PerClient]

    def without_sums(self) -> Self:
        """The answer of a client that adds no sums of terms: zeros, and no share of rows."""
        return replace(self, **{name: np.zeros_like(getattr(self, name)) for name in _SUMS})

    @property
    def has_sums(self) -> bool:
        """Whether the client adds sums of terms."""
        return bool(self.shares.any())


def fault_in_score_sums(
    _query: Query[Any], answer: ScoreSums, study: Study, _n_rows: int, /
) -> str | None:
    """Check that sums are not scaled, which would gain weight; the mean of one reveals scaling."""
    n_grams = answer.grams.shape[-3]
    if n_grams not in (1, study.n_actions):
        return "the number of grams fits neither one for all actions nor one for each"
    if answer.shares.min() < 0 or answer.shares.max() > 1 + CORNER_TOLERANCE:
        return "a share of rows is outside 0 to 1"
    corners = answer.grams[..., -1, -1]
    present = answer.shares[..., :n_grams] > 0
    if (np.abs(corners[present] - 1) > CORNER_TOLERANCE).any():
        return "the mean of one is not one"
    if answer.squares.min() < 0:
        return "a square is negative"
    return fault_in_moments(bordered(answer.grams, answer.products, answer.squares))


@message
class SumScores(Query[ScoreSums], code=3, asked=Asked.EACH):
    """Ask to score rows with these outcome models, or with own ones if there are none, and sum."""

    title = "Sums of scores"
    content = "means of squares and products of features and scores"
    models: Annotated[Array, (Axis.MODELS, Axis.ACTIONS, Axis.TERMS)]
    supported: Annotated[Array, (Axis.MODELS, Axis.ACTIONS)]  # 0 where nobody took the action
    checks_stacks = True
    fault_in = fault_in_score_sums


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
        return replace(self, **{name: np.zeros_like(getattr(self, name)) for name in _SUMS})

    def of_fold(self, fold: int) -> ScoreSums:
        """The sums of one fold's rows."""
        return ScoreSums(**{name: getattr(self, name)[fold] for name in _SUMS})

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


@message
class ContrastSquares(Message, code=144):
    """The mean over rows of Σ_a (Γ̂(a) − mean of Γ̂)², over actions that every row has scores for."""

    squares: Annotated[Array, (Axis.VERSIONS,), PerClient]


@message
class SumContrasts(Query[ContrastSquares], code=50, asked=Asked.EACH):
    """The mean of squared scores less the row's mean score, over training rows."""

    title = "How far scores of a row lie apart"
    content = "a mean of squares of scores"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether clients have personal policies and sums do not show how far they differ."""
        return study.personalises and not study.policy.compares_candidates

    def fault_in(self, answer: ContrastSquares, _study: Study, _n_rows: int, /) -> str | None:
        """Check that the mean of squares is not negative."""
        return "a mean of squares is negative" if answer.squares.min() < 0 else None


@message
class PairSums(Message, code=69):
    """Means of w·xxᵀ and w·x·s, with s the better of two actions and w its advantage."""

    grams: Annotated[Array, (Axis.PAIRS, Axis.PARAMETERS, Axis.PARAMETERS), WeightedMean]
    products: Annotated[Array, (Axis.PAIRS, Axis.PARAMETERS), WeightedMean]


@message
class SumPairs(Query[PairSums], code=5, asked=Asked.TOTAL):
    """Ask for such sums for every pair of actions, with rows weighted by the advantage."""

    title = "Sums for pairs of actions"
    content = "the same means, for each pair of actions"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether the study uses the oracle "wap"."""
        return study.linear.oracle == "wap"

    def fault_in(self, answer: PairSums, _study: Study, _n_rows: int) -> str | None:
        """Check that, as s² = 1, the mean of w·s² is that of w, the last number of a gram."""
        weights = answer.grams[:, -1, -1]
        return fault_in_moments(bordered(answer.grams, answer.products, weights))
