"""Prices at which clients are asked what a policy spends: about as many rows change between each.

A row decides for b instead of a while the price is below (τ_b(x) − τ_a(x)) / (c_b − c_a). Means and
variances of these differences follow from the sums that the policy was learned from, and prices lie
at quantiles of distributions that have them.
"""

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.messages.evaluation.price_curve import N_PRICES

# At the highest price nearly nobody gets what costs more: effects so many times their root mean
# square are rare.
_HIGHEST_EFFECTS = 8.0
# Student's: some rows gain far more for what they cost than others do.
_FREEDOM = 3.0
_N_QUANTILES = 4 * N_PRICES
# A price is at least so much above the one before, of the highest.
_LEAST_STEP = 1e-9


def placed_prices(
    means: FloatArray, covariances: FloatArray, costs: FloatArray, known: BoolArray
) -> FloatArray:  # (N_PRICES,)
    """Zero, quantiles of the prices at which rows decide anew, and one that hardly any row pays.

    `means` (n_actions,) and `covariances` are of the index, `costs` on average, by action.
    """
    from scipy.special import stdtrit  # here, as it is slow to import

    cheap, dear = np.nonzero(known[:, None] & known & (costs[:, None] < costs))
    apart = costs[dear] - costs[cheap]
    variances = np.diagonal(covariances)
    spread = variances[dear] + variances[cheap] - 2 * covariances[dear, cheap]
    level, width = (means[dear] - means[cheap]) / apart, np.sqrt(np.maximum(spread, 0.0)) / apart
    top = _HIGHEST_EFFECTS * float(np.hypot(level, width).max(initial=0.0)) or 1.0
    ranks = (np.arange(_N_QUANTILES) + 0.5) / _N_QUANTILES
    points = (level[:, None] + width[:, None] * stdtrit(_FREEDOM, ranks)).ravel()
    points = points[(points > 0) & (points < top)]
    # Where nobody is expected to pay anything, lower prices are looked at more closely.
    points = points if len(points) else top * np.geomspace(1e-3, 1.0, N_PRICES)[:-1]
    between = np.quantile(points, (np.arange(N_PRICES - 2) + 0.5) / (N_PRICES - 2))
    return _rising(np.concatenate([[0.0], between, [top]]), _LEAST_STEP * top)


def _rising(prices: FloatArray, step: float) -> FloatArray:
    """The same where quantiles are not alike, and a little more where they are."""
    steps = step * np.arange(len(prices))
    found: FloatArray = np.maximum.accumulate(prices - steps) + steps
    return found
