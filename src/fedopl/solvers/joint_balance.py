"""Weights for the rows of several sources together, found by Newton's method from their sums.

A row weighs exp(ηᵀb(x)), where b has every feature z = (x − centre)/scale and its square. The η at
which the sources' mean of b is the target's minimises the logarithm of all weights' sum (entropy
balancing, see `entropy_balance`). Its slope and curvature are sums over sources, so that nobody
needs rows: of each source, the mean weight, and weighted means of b and of its products.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray, to_eight_digits
from fedopl.base.decompositions import eigh

# Directions in which b varies less than this, in standard deviations squared, are taken to vary by
# it: noise on sums is of that size, and a step along it would be as long as noise likes.
_LEAST_VARIANCE = 0.01
# Variances below this share of the mean square are rounding.
_ROUNDING = 1e-12


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
    varies = there > _ROUNDING * squares[:-1]
    chosen = np.where(varies, there, np.where(variances > 0, variances, 1.0))
    whole = np.stack([np.append(means[:-1], 0.0), np.append(np.sqrt(chosen), 1.0)])
    centres, scales = to_eight_digits(whole[:, None, :])[:, 0]
    return Units(centres=centres, scales=scales)


def weights_at(terms: FloatArray, slopes: FloatArray, own: FloatArray) -> tuple[FloatArray, float]:
    """Weights own·exp(ηᵀb) of rows, which add up to one, and the logarithm of their mean.

    The largest exponent is taken out first, so no η is too large for them.
    """
    exponents = terms @ slopes + np.log(own / own.sum())
    largest = exponents.max()
    raised = np.exp(exponents - largest)
    total = raised.sum()
    return raised / total, float(largest + np.log(total))


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
    slopes: FloatArray,
    sums: Mapping[str, SourceSums],
    rows: Mapping[str, int],
    target: FloatArray,
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
