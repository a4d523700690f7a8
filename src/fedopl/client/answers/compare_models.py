"""How far others' models are from the client's own at its contexts: the parts of Theorem 3.

Two noisy models differ even if the truth does not. How much a model changes without a part of its
rows shows how much of the difference is noise. That amount is subtracted. It also gives the
standard error.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.answers.tell_models import WHOLE, OwnModels, own_models
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.rows.chunks import Chunk
from fedopl.client.rows.folds import Folds
from fedopl.client.workspace import Workspace
from fedopl.messages.about_differences import N_PARTS, CompareModels, ModelShifts
from fedopl.messages.refusal import RefusalCode
from fedopl.theory import divergences
from fedopl.theory.divergences import gaussian_outcome_kl

# Divergence of own models from theirs at each row (n_rows,). The two arguments say which part of
# the rows each model was fitted without, or `WHOLE`.
Divergence = Callable[[int, int], FloatArray]
SHARE_TOLERANCE = 1e-12  # avoids log(0) where a propensity underflows


def answer(space: Workspace, query: CompareModels) -> ModelShifts:
    """Divergences from every model, over all training rows."""
    own, theirs = own_models(space), _models_of(query)
    compared = [_Comparison(own, others) for others in theirs]
    for chunk, parts in space.study_rows.chunks_and_parts():
        rows = ComparedRows(chunk, parts)
        ours = _said(own, rows)
        for comparison in compared:
            comparison.add(rows, ours)
    found = [comparison.found() for comparison in compared]
    fields: dict[str, Any] = {name: np.array([one[name] for one in found]) for name in found[0]}
    return ModelShifts(**fields)


class ComparedRows:
    """Training rows of a chunk, over which predictions of models are averaged."""

    def __init__(self, chunk: Chunk, parts: Folds) -> None:
        training = chunk.training
        self.contexts = chunk.data.contexts[training]
        self.parts: IntArray = parts.of_row[training].astype(np.int64)
        self.weights = chunk.data.weights_of(training)

    def means(self, parameters: FloatArray) -> FloatArray:  # (n_repeats, n_rows, n_actions)
        """The predictions of linear models for each row."""
        slopes = np.swapaxes(parameters[..., :-1], -1, -2)
        linear: FloatArray = self.contexts @ slopes + parameters[:, None, :, -1]
        return linear

    def chances(self, parameters: FloatArray) -> FloatArray:  # (n_repeats, n_rows, n_actions)
        """The propensity of each action in each row."""
        from scipy.special import softmax  # here, because it is slow to import

        chances = np.maximum(softmax(self.means(parameters), axis=-1), SHARE_TOLERANCE)
        shares: FloatArray = chances / chances.sum(axis=-1, keepdims=True)
        return shares


class _Means:
    """Weighted means of columns, each over the rows in which it is a number."""

    def __init__(self, n_columns: int) -> None:
        self._sums, self._weights = np.zeros((2, n_columns))

    def add(self, rows: ComparedRows, columns: Sequence[FloatArray]) -> None:
        """Add these rows."""
        for place, column in enumerate(columns):
            known = ~np.isnan(column)
            self._sums[place] += (column[known] * rows.weights[known]).sum()
            self._weights[place] += rows.weights[known].sum()

    @property
    def found(self) -> FloatArray:  # (n_columns,)
        """The means of what was added."""
        found: FloatArray = self._sums / self._weights
        return found


def _models_of(query: CompareModels) -> list[OwnModels]:
    """The models in the query, client by client."""
    arrays = query.propensities, query.outcomes, query.variances, query.supported > 0
    if len({len(array) for array in arrays}) > 1:
        raise RefusedError(RefusalCode.MALFORMED)
    if (np.where(arrays[-1][:, None], query.variances, 1.0) <= 0).any():
        raise RefusedError(RefusalCode.MALFORMED)
    return [
        OwnModels(propensities=scores, outcomes=means, variances=variances, supported=known)
        for scores, means, variances, known in zip(*arrays, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class _Said:
    """One client's models, and their predictions for our rows."""

    models: OwnModels
    chances: FloatArray  # (n_repeats, n_rows, n_actions)
    means: FloatArray  # (n_repeats, n_rows, n_actions)


def _said(models: OwnModels, rows: ComparedRows) -> _Said:
    return _Said(models, rows.chances(models.propensities), rows.means(models.outcomes))


class _Comparison:
    """One client's models compared with ours, over rows that arrive in blocks."""

    def __init__(self, own: OwnModels, theirs: OwnModels) -> None:
        self._own, self._theirs = own, theirs
        self._both = own.supported & theirs.supported
        self._propensities, self._outcomes = _Means(1 + 2 * N_PARTS), _Means(1 + 2 * N_PARTS)
        self._variation = _Means(N_PARTS)

    def add(self, rows: ComparedRows, own: _Said) -> None:
        """Compare the predictions of both models for these rows."""
        both, theirs = self._both, _said(self._theirs, rows)

        def of_propensities(ours: int, other: int) -> FloatArray:
            return divergences.kl(own.chances[ours], theirs.chances[other])

        def of_outcomes(ours: int, other: int) -> FloatArray:
            if not both.any():
                return np.zeros(len(rows.weights))
            return gaussian_outcome_kl(
                own.means[ours][:, both],
                theirs.means[other][:, both],
                own.models.variances[ours, both],
                theirs.models.variances[other, both],
            )

        self._propensities.add(rows, _divergences(rows, of_propensities))
        self._outcomes.add(rows, _divergences(rows, of_outcomes))
        self._variation.add(rows, _variations(rows, own.chances, theirs.chances))

    def found(self) -> dict[str, float]:
        """The results over all rows added."""
        tv, tv_variance = _total_variation(self._variation.found)
        return {
            **_without_noise("propensity_kl", self._propensities.found),
            "propensity_tv": tv,
            "propensity_tv_variance": tv_variance,
            **_without_noise("outcome_kl", self._outcomes.found),
        }


def _divergences(rows: ComparedRows, divergence: Divergence) -> list[FloatArray]:
    """Over all rows; without each part of ours, rows included; without each part of theirs."""
    parts = range(N_PARTS)
    ours = [np.where(rows.parts != part, divergence(part, WHOLE), np.nan) for part in parts]
    return [divergence(WHOLE, WHOLE), *ours, *(divergence(WHOLE, part) for part in parts)]


def _without_noise(name: str, means: FloatArray) -> dict[str, float]:
    """The mean divergence less its noise, the noise, and the variance of the difference.

    Divergences are about quadratic in the models. So noise raises them by an amount that is
    inversely proportional to the rows behind a model. Leaving a part out shows how large that
    amount is (Quenouille 1956; for the variance, Tukey 1958). Our contexts are left out together
    with our model, so that the variance includes that of the contexts.
    """
    whole, each = float(means[0]), np.split(means[1:], 2)
    noise = float(sum((N_PARTS - 1) * (np.mean(own) - whole) for own in each))
    variance = float(sum((N_PARTS - 1) * np.var(own) for own in each))
    return {name: whole - noise, f"{name}_noise": noise, f"{name}_variance": variance}


def _variations(rows: ComparedRows, ours: FloatArray, theirs: FloatArray) -> list[FloatArray]:
    """½ Σ_a s·(e_c − e_k) over the rows of each part: see `_total_variation`."""
    found = []
    for part in range(N_PARTS):
        signs = np.sign(ours[part] - theirs[part])
        alone = _of_part_alone(ours, part) - _of_part_alone(theirs, part)
        each = 0.5 * (signs * alone).sum(axis=-1)
        found.append(np.where(rows.parts == part, each, np.nan))
    return found


def _total_variation(by_part: FloatArray) -> tuple[float, float]:
    """A lower bound on the mean total variation of propensities, and its variance.

    The bound is ½ Σ_a s·(e_c − e_k). The signs s are from models without a part, the differences
    from that part alone. So noise in one does not add to noise in the other: without a shift the
    mean is 0. Where the signs are right, the bound is the total variation.

    The signs for each part come from the other parts. Without a shift, the variance over parts is
    therefore too small by the factor 2(K − 1)/(K − 2), and it is enlarged by that factor. With a
    shift the enlarged variance is too large by the same factor.
    """
    enlarged = 2 * (N_PARTS - 1) / (N_PARTS - 2)
    return float(np.mean(by_part)), float(enlarged * np.var(by_part, ddof=1) / N_PARTS)


def _of_part_alone(chances: FloatArray, part: int) -> FloatArray:  # (n_rows, n_actions)
    """The part's propensities: those of all rows are about the average of those of the parts."""
    alone: FloatArray = N_PARTS * chances[WHOLE] - (N_PARTS - 1) * chances[part]
    return alone
