"""How far others' models are from the client's own at its contexts: the parts of Theorem 3.

Two noisy models differ even if the truth does not. How much a model changes without a part of its
rows shows how much of the difference is noise. That is subtracted, and it gives the standard error.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray, to_eight_digits
from fedopl.client.answers.tell_models import WHOLE, OwnModels, own_models
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.local.score_means import effective_rows_behind, without_zeros
from fedopl.client.workspace import Workspace
from fedopl.messages.diagnosis.client_models import N_PARTS
from fedopl.messages.diagnosis.model_shifts import CompareModels, ModelShifts
from fedopl.messages.refusal import RefusalCode
from fedopl.theory import discrete
from fedopl.theory.gaussian import gaussian_outcome_kl

# A divergence at each row (n_rows,), of own models from theirs, each without a part or whole.
Divergence = Callable[[int, int], FloatArray]
N_DIVERGENCES = 3  # that are released for each client's models
# Propensities that jump from row to row would count the rows on either side. An honest model's
# log-odds vary by a few units; these still rise over a large part of the rows.
STEEPEST = 10.0
SHARE_TOLERANCE = 1e-12  # so that log(0) does not come up where a chance underflows


def answer(space: Workspace, query: CompareModels) -> ModelShifts:
    """Divergences from every model; a comparison that rests on a few rows is suppressed."""
    own = own_models(space)
    # To eight digits, so that noise does not follow from the last bits of another's processor.
    query = replace(query, propensities=to_eight_digits(query.propensities))
    theirs = _models_of(query)
    space.limits.check_parameters(N_DIVERGENCES * len(theirs), space.n_training)
    rows = ComparedRows(space)
    ours = _said(own, rows)
    found = [_compared(rows, ours, _said(others, rows), space.rows_needed) for others in theirs]
    if space.limits.value_noise:
        # The signs of models without a part can jump wherever their sender likes, between two rows.
        influence = space.limits.value_noise / space.n_training
        for one, others in zip(found, query.propensities, strict=True):
            drawn = space.noise_for("total variation", others).standard_normal()
            one["propensity_tv"] += one["compared"] * influence * drawn
            one["propensity_tv_variance"] += one["compared"] * influence**2
    fields: dict[str, Any] = {name: np.array([one[name] for one in found]) for name in found[0]}
    return ModelShifts(**fields)


class ComparedRows:
    """The training rows, as what models say of them is averaged."""

    def __init__(self, space: Workspace) -> None:
        data, training = space.data, space.training
        self.contexts = data.contexts[training]
        self.parts: IntArray = space.study_rows.parts.of_row[training].astype(np.int64)
        self.weights = data.weights_of(training)

    def means(self, parameters: FloatArray) -> FloatArray:  # (n_repeats, n_rows, n_actions)
        """What linear models say of each row."""
        slopes = np.swapaxes(parameters[..., :-1], -1, -2)
        linear: FloatArray = self.contexts @ slopes + parameters[:, None, :, -1]
        return linear

    def chances(self, parameters: FloatArray) -> FloatArray:  # (n_repeats, n_rows, n_actions)
        """How likely each action is in each row."""
        from scipy.special import softmax  # here, as it is slow to import

        chances = np.maximum(softmax(self.means(parameters), axis=-1), SHARE_TOLERANCE)
        shares: FloatArray = chances / chances.sum(axis=-1, keepdims=True)
        return shares

    def steepness(self, parameters: FloatArray) -> float:
        """The largest standard deviation of an action's scores, less those of all actions."""
        scores = self.means(parameters)
        return float((scores - scores.mean(axis=-1, keepdims=True)).std(axis=1).max())

    def average(self, values: FloatArray, rows: BoolArray | slice = slice(None)) -> float:
        """The weighted mean over these rows."""
        return float(np.average(values[rows], weights=self.weights[rows]))


def _models_of(query: CompareModels) -> list[OwnModels]:
    """The models in the query, one client's after the other's."""
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
    """One client's models, and what they say of our rows."""

    models: OwnModels
    chances: FloatArray  # (n_repeats, n_rows, n_actions)
    means: FloatArray  # (n_repeats, n_rows, n_actions)


def _said(models: OwnModels, rows: ComparedRows) -> _Said:
    return _Said(models, rows.chances(models.propensities), rows.means(models.outcomes))


def _compared(rows: ComparedRows, own: _Said, theirs: _Said, needed: int) -> dict[str, float]:
    """One client's models against ours."""
    both = own.models.supported & theirs.models.supported

    def of_propensities(ours: int, other: int) -> FloatArray:
        return discrete.kl(own.chances[ours], theirs.chances[other])

    def of_outcomes(ours: int, other: int) -> FloatArray:
        if not both.any():
            return np.zeros(len(rows.weights))
        return gaussian_outcome_kl(
            own.means[ours][:, both],
            theirs.means[other][:, both],
            own.models.variances[ours, both],
            theirs.models.variances[other, both],
        )

    behind = np.column_stack([of_propensities(WHOLE, WHOLE), of_outcomes(WHOLE, WHOLE)])
    tv, tv_variance = _total_variation(rows, own.chances, theirs.chances)
    found = {
        "compared": 1.0,
        **_named("propensity_kl", _without_noise(rows, of_propensities)),
        "propensity_tv": tv,
        "propensity_tv_variance": tv_variance,
        **_named("outcome_kl", _without_noise(rows, of_outcomes)),
    }
    # Models just like ours, or of no action that we know, differ in no row at all.
    few = effective_rows_behind(without_zeros(behind * rows.weights[:, None])) < needed
    steep = needed > 1 and rows.steepness(theirs.models.propensities) > STEEPEST
    return dict.fromkeys(found, 0.0) if few or steep else found


def _named(name: str, found: tuple[float, float, float]) -> dict[str, float]:
    return dict(zip((name, f"{name}_noise", f"{name}_variance"), found, strict=True))


def _without_noise(rows: ComparedRows, divergence: Divergence) -> tuple[float, float, float]:
    """The mean divergence less its noise, the noise, and the variance of what is left.

    Divergences are about quadratic in the models, so noise raises them by what is inversely
    proportional to the rows behind a model: leaving a part out shows by how much (Quenouille 1956;
    for the variance, Tukey 1958). Our contexts are left out with our model, so that the variance
    has theirs in it.
    """
    whole = rows.average(divergence(WHOLE, WHOLE))
    without_ours = [
        rows.average(divergence(part, WHOLE), rows.parts != part) for part in range(N_PARTS)
    ]
    without_theirs = [rows.average(divergence(WHOLE, part)) for part in range(N_PARTS)]
    noise = sum((N_PARTS - 1) * (np.mean(t) - whole) for t in (without_ours, without_theirs))
    variance = sum((N_PARTS - 1) * np.var(t) for t in (without_ours, without_theirs))
    return whole - float(noise), float(noise), float(variance)


def _total_variation(
    rows: ComparedRows, ours: FloatArray, theirs: FloatArray
) -> tuple[float, float]:
    """A lower bound on the mean total variation of propensities, and its variance.

    ½ Σ_a s·(e_c − e_k), the signs s from models without a part, the differences from that part
    alone. So noise in one does not add up with noise in the other: without a shift it is 0 on
    average. Where signs are found rightly, it is the total variation. Parts lend their signs to
    each other: without a shift the spread over parts is too small by 2(K − 1)/(K − 2), for which
    the variance is enlarged; with one, it is that much too large.
    """
    by_part = []
    for part in range(N_PARTS):
        signs = np.sign(ours[part] - theirs[part])
        alone = _of_part_alone(ours, part) - _of_part_alone(theirs, part)
        by_part.append(rows.average(0.5 * (signs * alone).sum(axis=-1), rows.parts == part))
    enlarged = 2 * (N_PARTS - 1) / (N_PARTS - 2)
    return float(np.mean(by_part)), float(enlarged * np.var(by_part, ddof=1) / N_PARTS)


def _of_part_alone(chances: FloatArray, part: int) -> FloatArray:  # (n_rows, n_actions)
    """What the part adds: models of all rows are about the average of those of the parts."""
    alone: FloatArray = N_PARTS * chances[WHOLE] - (N_PARTS - 1) * chances[part]
    return alone
