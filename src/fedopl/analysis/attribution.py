"""How far clients differ: their contexts, taken for Gaussian, and Theorem 3's sources of shift."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.decompositions import eigh
from fedopl.base.errors import OptionError
from fedopl.messages.learning.score_sums import ScoreSums
from fedopl.results.diagnosis import Shift
from fedopl.results.record import Record
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.study.mixture import Weights, renormalised
from fedopl.theory.bounds import shift_bound
from fedopl.theory.divergences import (
    Gaussian,
    Interval,
    gaussian_chi_squared,
    gaussian_kl,
    gaussian_tv_interval,
)

# An action with scores on this share of rows has scores on all rows, up to rounding.
_ALL_ROWS = 1 - 1e-9
# A feature varies if its variance exceeds this part of its mean square.
_LEAST_VARIANCE = 1e-12
# A direction counts if its variance is at least the first part of the largest variance of scaled
# features. Each of the two clients must also have the second part of their average variance.
_LEAST_SPREAD, _LEAST_PART = 1e-9, 1e-6


@dataclass(frozen=True, eq=False, kw_only=True)
class Moments:
    """Mean and covariance of contexts."""

    mean: FloatArray  # (n_features,)
    covariance: FloatArray  # (n_features, n_features)


@dataclass(frozen=True, kw_only=True)
class ContextShift:
    """Divergences of one distribution from another, both Gaussians with the given moments.

    Directions in which either has no variance are left out. These are features that are constant or
    follow from others. They are also features that only identify the client: there the divergence
    would be infinite.
    """

    kl: float
    chi_squared: float  # infinite if the other distribution is much narrower
    total_variation: Interval
    n_directions: int
    n_left_out: int


def why_unknown(statistics: ScoreStatistics) -> str | None:
    """Why the sums do not give the moments of contexts, in a sentence; None if they do."""
    if statistics.study.linear.features == "blocks":
        return "Clients reported sums of each action's own features, not of all together."
    partial = sorted(name for name, sums in statistics.sums.items() if _whole(sums) is None)
    if partial:
        return (
            f"No action of {', '.join(partial)} has a score on all rows, so the sums leave out "
            "some contexts."
        )
    return None


def context_moments(statistics: ScoreStatistics) -> dict[str, Moments]:
    """Mean and covariance of every client's contexts, over training rows."""
    if unknown := why_unknown(statistics):
        raise OptionError(f"contexts: {unknown}")
    grams = {name: _whole(sums) for name, sums in sorted(statistics.sums.items())}
    # Only the features, which come first: the other terms of a basis follow from them.
    kept = [*range(statistics.study.n_features), -1]
    return {
        name: _moments(gram[np.ix_(kept, kept)]) for name, gram in grams.items() if gram is not None
    }


def mixture_moments(moments: Mapping[str, Moments], weights: Weights) -> Moments:
    """Mean and covariance of the mixture: the variance within clients, and between them."""
    shares = renormalised(weights, moments.keys())
    mean = sum((shares[name] * moments[name].mean for name in shares), start=np.zeros(1))
    covariance: FloatArray = np.zeros((len(mean), len(mean)))
    for name, share in shares.items():
        away = moments[name].mean - mean
        covariance = covariance + share * (moments[name].covariance + np.outer(away, away))
    return Moments(mean=mean, covariance=covariance)


def context_shift(own: Moments, other: Moments) -> ContextShift:
    """The divergences of `own` contexts from `other` contexts."""
    gap, variances, others = _common_axes(own, other)
    n_left_out = len(own.mean) - len(gap)
    if not len(gap):
        nothing = Interval(lower=0.0, upper=0.0)
        return ContextShift(
            kl=0.0, chi_squared=0.0, total_variation=nothing, n_directions=0, n_left_out=n_left_out
        )
    p = Gaussian(mean=gap, covariance=np.diag(variances))
    q = Gaussian(mean=np.zeros(len(gap)), covariance=np.diag(others))
    return ContextShift(
        kl=gaussian_kl(p, q),
        chi_squared=gaussian_chi_squared(p, q),
        total_variation=gaussian_tv_interval(p, q),
        n_directions=len(gap),
        n_left_out=n_left_out,
    )


def shifts_from_mixture(
    moments: Mapping[str, Moments], weights: Weights
) -> dict[str, ContextShift]:
    """Divergences of every client's contexts from a Gaussian with the mixture's moments."""
    everybody = mixture_moments(moments, weights)
    return {name: context_shift(moments[name], everybody) for name in sorted(moments)}


def kl_by_chance(n_directions: int, rows: int, other_rows: int) -> float:
    """The mean KL between two samples of the same Gaussian, to first order.

    ½·(D + D(D + 1)/2)·(1/n + 1/m): one term for each mean, variance and covariance.
    """
    n_moments = n_directions + n_directions * (n_directions + 1) / 2
    return 0.5 * n_moments * (1 / rows + 1 / other_rows)


def estimated_kl(own: Moments, other: Moments, rows: int, other_rows: int) -> tuple[float, float]:
    """The KL of one Gaussian from another, from sample moments, and its standard error.

    What chance adds to the KL is subtracted. The error has two parts. One is by the delta method: a
    sample covariance S of n rows has Var tr(AS) = 2·tr(AΣAΣ)/n. The other is the spread of a χ².
    Only this part is left if both distributions are the same.
    """
    gap, variances, others = _common_axes(own, other)
    ratios = variances / others
    kl = 0.5 * float(np.sum(ratios - 1 - np.log(ratios) + gap**2 / others))
    pull = gap / others
    by_own = 0.5 * (1 / others - 1 / variances)
    by_other = 0.5 * (np.diag(1 / others - variances / others**2) - np.outer(pull, pull))
    scaled = by_other * others  # AΣ
    n_moments = len(gap) + len(gap) * (len(gap) + 1) / 2
    variance = (
        np.sum(pull**2 * (variances / rows + others / other_rows))
        + 2 * np.sum((by_own * variances) ** 2) / rows
        + 2 * np.trace(scaled @ scaled) / other_rows
        + 0.5 * n_moments * (1 / rows + 1 / other_rows) ** 2
    )
    by_chance = kl_by_chance(len(gap), rows, other_rows)
    return max(kl - by_chance, 0.0), float(np.sqrt(variance))


def _whole(sums: ScoreSums) -> FloatArray | None:  # (n_columns, n_columns)
    """The matrix of products over all rows, from an action that has a score in all rows."""
    if len(sums.grams) == 1:
        return np.asarray(sums.grams[0])
    whole = np.flatnonzero(sums.shares >= _ALL_ROWS)
    return np.asarray(sums.grams[whole[0]]) if whole.size else None


def _moments(gram: FloatArray) -> Moments:
    mean = gram[-1, :-1]
    covariance = gram[:-1, :-1] - np.outer(mean, mean)
    # A constant feature has no variance, though rounding may leave a little.
    varies = np.diagonal(covariance) > _LEAST_VARIANCE * np.diagonal(gram)[:-1]
    return Moments(mean=mean, covariance=np.where(np.outer(varies, varies), covariance, 0.0))


def _common_axes(own: Moments, other: Moments) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The gap of the means and both variances, along axes in which both are uncorrelated.

    The coordinates make the average of the two covariances the identity. Then both covariances have
    the same eigenvectors. Divergences do not depend on coordinates.
    """
    whitening = _whitening((own.covariance + other.covariance) / 2)
    variances, directions = eigh(whitening.T @ own.covariance @ whitening)
    others = 2 - variances  # because the average of both is the identity
    both = (variances > 2 * _LEAST_PART) & (others > 2 * _LEAST_PART)
    gap = directions.T @ (whitening.T @ (own.mean - other.mean))
    return gap[both], variances[both], others[both]


def _whitening(covariance: FloatArray) -> FloatArray:  # (n_features, n_directions)
    """W with WᵀΣW = I, on the directions that Σ spans."""
    variance = np.diagonal(covariance)
    scales = np.sqrt(np.where(variance > 0, variance, 1.0))
    eigenvalues, vectors = eigh(covariance / np.outer(scales, scales))
    spanned = eigenvalues > _LEAST_SPREAD * max(float(eigenvalues.max(initial=0.0)), 1e-300)
    whitening: FloatArray = vectors[:, spanned] / np.sqrt(eigenvalues[spanned]) / scales[:, None]
    return whitening


Source = Literal["covariates", "propensities", "outcomes"]
# In the order of Theorem 3.
SOURCES: tuple[Source, ...] = ("covariates", "propensities", "outcomes")
# The KL divergences of one client from each other client, and standard errors; NaN if unknown.
_Divergences = tuple[FloatArray, FloatArray]  # (n_clients,) both


@dataclass(frozen=True, kw_only=True)
class SourceShift:
    """E_{k∼λ}[√KL] of one source, and an upper bound on its standard error."""

    value: float
    standard_error: float

    @property
    def is_sure(self) -> bool:
        """Whether the shift is larger than chance explains."""
        return self.value > 2 * self.standard_error


@dataclass(frozen=True, kw_only=True)
class ClientShift:
    """How far one client is from the mixture, by source. Unknown sources are left out."""

    client: str
    parts: dict[Source, SourceShift]
    joint: float | None  # an upper bound on TV(D̄_c, D̄_λ), if all three sources are known

    @property
    def largest(self) -> Source | None:
        """The source with the largest shift, if any shift is larger than chance explains."""
        sure = {source: part.value for source, part in self.parts.items() if part.is_sure}
        return max(sure, key=lambda source: sure[source], default=None)


def shifts_of(record: Record) -> dict[str, ClientShift]:
    """Every client's shift from the mixture, by source.

    Contexts are treated as Gaussian, with moments from the clients' sums. What chance adds to a
    divergence is subtracted. The other two sources are known if the study has a diagnosis.
    """
    names = sorted(record.statistics.sums)
    if len(names) < 2:
        return {}
    weights = renormalised(record.mixture, names)
    shares = np.array([weights[name] for name in names])
    contexts = None if why_unknown(record.statistics) else context_moments(record.statistics)
    models = record.diagnosis.models if record.diagnosis else None
    found = {}
    for name in names:
        sources: dict[Source, _Divergences | None] = {
            "covariates": None if contexts is None else _contexts(record, contexts, name),
            "propensities": _models(models.propensity_kl, name, names) if models else None,
            "outcomes": _models(models.outcome_kl, name, names) if models else None,
        }
        found[name] = _client_shift(name, shares, sources)
    return found


def _contexts(record: Record, contexts: Mapping[str, Moments], name: str) -> _Divergences:
    """Divergences of one client's contexts from those of each other client."""
    found = [
        estimated_kl(contexts[name], contexts[other], record.rows[name], record.rows[other])
        if other != name
        else (0.0, 0.0)
        for other in sorted(contexts)
    ]
    kl, errors = np.array(found).T
    return kl, errors


def _models(shift: Shift, name: str, names: list[str]) -> _Divergences | None:
    """Divergences of one client's models from those of each other client, in the order of names."""
    if name not in shift.names:
        return None
    own = dict(zip(shift.names, shift.divergences(name), strict=True))
    row = dict(zip(shift.names, shift.standard_errors[shift.names.index(name)], strict=True))
    # In float64, None and missing entries become NaN.
    kl, errors = (np.array([part.get(n) for n in names], np.float64) for part in (own, row))
    return kl, errors


def _client_shift(
    name: str, shares: FloatArray, sources: Mapping[Source, _Divergences | None]
) -> ClientShift:
    known = {
        source: found
        for source, found in sources.items()
        if found is not None and shares[np.isfinite(found[0])].sum() > 0
    }
    parts = {source: _part(shares, found) for source, found in known.items()}
    joint = None
    if len(known) == len(SOURCES):
        kl = [known[source][0] for source in SOURCES]
        here = np.isfinite(np.sum(kl, axis=0)) & (shares > 0)
        if shares[here].sum() > 0:
            joint = shift_bound(shares[here] / shares[here].sum(), *(k[here] for k in kl)).joint
    return ClientShift(client=name, parts=parts, joint=joint)


def _part(shares: FloatArray, found: _Divergences) -> SourceShift:
    """E_{k∼λ}[√KL] over the known clients, and a bound on its error, the sum of all errors."""
    known = np.isfinite(found[0]) & np.isfinite(found[1])
    weights = shares[known] / shares[known].sum()
    kl, errors = found[0][known], found[1][known]
    # d√KL/dKL is unbounded near 0. There, the standard error stands in for KL.
    slope = 0.5 / np.sqrt(np.maximum(np.maximum(kl, errors), 1e-300))
    return SourceShift(
        value=float(weights @ np.sqrt(kl)), standard_error=float(weights @ (errors * slope))
    )
