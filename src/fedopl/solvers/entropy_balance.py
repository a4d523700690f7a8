"""Weights that make rows resemble another population, given only its means and mean squares.

Entropy balancing (Hainmueller, 2012): among all weights under which every feature has the other
population's mean and mean square, it finds the weights nearest to equal ones, w = exp(ηᵀ(B(x) −
m)). They minimise log Σ wᵢ in η, and Newton's method finds the minimum: for rows in one place, or
for those of several sources together. The slope and curvature are then sums over sources, so that
nobody needs rows: of each source, the mean weight, and weighted means of B and of its products.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray, to_eight_digits
from fedopl.base.decompositions import eigh, solve
from fedopl.solvers.least_squares import effective_rows

# Rows look like others if no mean or mean square is further away, in standard deviations.
LARGEST_GAP = 0.1
# Keeps η finite where no weights reach the other population; too small to move reachable ones.
_RIDGE = 1e-4
_MOST_STEPS = 200
# A step that would lower the logarithm by less than this makes no visible difference.
_SMALLEST_GAIN = 1e-14
_SHORTEST = 1e-6  # part of a Newton step that is tried
# Variances below this share of the mean square are rounding.
_NO_VARIANCE = 1e-12


@dataclass(frozen=True, eq=False, kw_only=True)
class Balanced:
    """Row weights that add up to one, and how close they come to the other population."""

    weights: FloatArray  # (n_rows,)
    largest_gap: float  # in a mean or mean square, in standard deviations of the population


def rows_behind(weights: FloatArray) -> float:
    """Effective rows (Σw)²/Σw²: all rows if weights are equal, one if one row has it all."""
    total, squares = np.asarray(weights.sum()), np.asarray(np.square(weights).sum())
    return float(effective_rows(total, squares))


def balance(
    contexts: FloatArray, means: FloatArray, squares: FloatArray, weights: FloatArray | None = None
) -> Balanced:
    """Weights under which contexts (n_rows, n_features) have these means and mean squares.

    Rows may have `weights` of their own. Where no weights reach the means and squares exactly, the
    gap says how far away the nearest ones stay.
    """
    columns = _columns(contexts, means, squares)
    own = np.ones(len(contexts)) if weights is None else weights
    found = _weights(columns, own)
    return Balanced(weights=found, largest_gap=float(np.abs(found @ columns).max(initial=0.0)))


def _columns(
    contexts: FloatArray, means: FloatArray, squares: FloatArray
) -> FloatArray:  # (n_rows, 2·n_features)
    """B(x) − m: deviations from the other population's means, in its standard deviations."""
    variances = np.maximum(squares - means**2, 0.0)
    known = variances > _NO_VARIANCE * squares
    # A feature that never varies there is scaled by its deviation here.
    own = contexts.var(axis=0) if len(contexts) else np.ones(len(means))
    scales = np.sqrt(np.where(known, variances, np.where(own > 0, own, 1.0)))
    apart = (contexts - means) / scales
    return np.hstack([apart, apart**2 - np.where(known, 1.0, 0.0)])


def _weights(columns: FloatArray, own: FloatArray) -> FloatArray:  # (n_rows,)
    """exp(ηᵀ(B − m)) at the η that minimises the logarithm of their sum plus a ridge on η."""
    eta = np.zeros(columns.shape[1])
    value, weights = _at(eta, columns, own)
    for _ in range(_MOST_STEPS):
        mean = weights @ columns
        slope = mean + _RIDGE * eta
        hessian = (columns * weights[:, None]).T @ columns - np.outer(mean, mean)
        step = -solve(hessian + _RIDGE * np.eye(len(eta)), slope)
        gain = -float(slope @ step)
        if gain < _SMALLEST_GAIN:
            break
        part = 1.0
        while part > _SHORTEST:
            lower, found = _at(eta + part * step, columns, own)
            if lower <= value - 1e-4 * part * gain:
                break
            part /= 2
        else:
            break
        eta, value, weights = eta + part * step, lower, found
    return weights


def _at(eta: FloatArray, columns: FloatArray, own: FloatArray) -> tuple[float, FloatArray]:
    """The logarithm of the sum plus its ridge, and weights that add up to one."""
    weights, log_weight = weights_at(columns, eta, own)
    return log_weight + float(_RIDGE / 2 * (eta @ eta)), weights


def weights_at(terms: FloatArray, slopes: FloatArray, own: FloatArray) -> tuple[FloatArray, float]:
    """Weights own·exp(ηᵀb) of rows, which add up to one, and the logarithm of their mean.

    The largest exponent is taken out first, so no η is too large for them.
    """
    exponents = terms @ slopes + np.log(own / own.sum())
    largest = exponents.max()
    raised = np.exp(exponents - largest)
    total = raised.sum()
    return raised / total, float(largest + np.log(total))


# Directions in which b varies less than this, in standard deviations squared, are taken to vary by
# it: noise on sums is of that size, and a step along it would be as long as noise likes.
_LEAST_VARIANCE = 0.01


@dataclass(frozen=True, eq=False, kw_only=True)
class Units:
    """What features are measured from and in: the target's means and standard deviations."""

    centres: FloatArray  # (n_features + 1,), the last of them for the intercept
    scales: FloatArray  # (n_features + 1,)

    def of(self, contexts: FloatArray) -> FloatArray:  # (n_rows, 2·n_features)
        """b(x) of these rows."""
        standard = (contexts - self.centres[:-1]) / self.scales[:-1]
        return np.hstack([standard, standard**2])

    def moments(self, means: FloatArray, squares: FloatArray) -> FloatArray:  # (2·n_features,)
        """The mean of b where features have these means and mean squares."""
        own, about = means[:-1], self.centres[:-1]
        apart = squares[:-1] - 2 * own * about + about**2
        scales = self.scales[:-1]
        return np.concatenate([(own - about) / scales, apart / scales**2])


def units_of(means: FloatArray, squares: FloatArray, variances: FloatArray) -> Units:
    """The target's; a feature that does not vary there is in units of its deviation elsewhere."""
    there = np.maximum(squares[:-1] - means[:-1] ** 2, 0.0)
    varies = there > _NO_VARIANCE * squares[:-1]
    chosen = np.where(varies, there, np.where(variances > 0, variances, 1.0))
    whole = np.stack([np.append(means[:-1], 0.0), np.append(np.sqrt(chosen), 1.0)])
    centres, scales = to_eight_digits(whole[:, None, :])[:, 0]
    return Units(centres=centres, scales=scales)


@dataclass(frozen=True, eq=False, kw_only=True)
class SourceSums:
    """What one source tells about its rows at some η."""

    log_weight: float
    means: FloatArray  # (2·n_features,)
    products: FloatArray  # (2·n_features, 2·n_features)


@dataclass(frozen=True, eq=False, kw_only=True)
class JointBalance:
    """All sources' rows at some η: who has how much of the weight, and how far from the target."""

    slopes: FloatArray  # η, (2·n_features,)
    shares: Mapping[str, float]  # of all weight, by source
    apart: FloatArray  # (2·n_features,) means of b less the target's
    covariances: FloatArray  # (2·n_features, 2·n_features)

    @property
    def gap(self) -> float:
        """The largest difference from the target, in its standard deviations."""
        return float(np.abs(self.apart).max(initial=0.0))

    def step(self) -> FloatArray:  # (2·n_features,)
        """Newton's, but no further than the quadratic can be trusted."""
        sizes, axes = eigh(self.covariances)
        along = axes.T @ self.apart / np.maximum(sizes, _LEAST_VARIANCE)
        length = math.sqrt(float(self.apart @ (axes @ along)))
        return np.asarray(-(axes @ along) / max(1.0, length))


def balance_at(
    slopes: FloatArray, sums: Mapping[str, SourceSums], rows: Mapping[str, int], target: FloatArray
) -> JointBalance:
    """What sources' sums at this η come to; before it, every row weighs the same."""
    names = sorted(sums)
    logs = np.array([sums[name].log_weight + math.log(rows[name]) for name in names])
    raised = np.exp(logs - logs.max())
    shares = raised / raised.sum()
    means = sum(share * sums[name].means for name, share in zip(names, shares, strict=True))
    second = sum(share * sums[name].products for name, share in zip(names, shares, strict=True))
    return JointBalance(
        slopes=slopes,
        shares=dict(zip(names, shares.tolist(), strict=True)),
        apart=np.asarray(means) - target,
        covariances=np.asarray(second) - np.outer(means, means),
    )


def following(slopes: FloatArray, step: FloatArray) -> FloatArray:  # (2·n_features,)
    """The next η, to as many digits as count."""
    return np.asarray(to_eight_digits((slopes + step)[None, :])[0])
