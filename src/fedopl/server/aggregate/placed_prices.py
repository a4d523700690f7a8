"""Prices at which clients report what a policy spends.

Between any two neighbouring prices, the decision changes in about as many rows. A row gets b
instead of a while the price is below (τ_b(x) − τ_a(x)) / (c_b − c_a). The means and variances of
these ratios follow from the sums that the policy was learned from. Prices are quantiles of
distributions with these means and variances.
"""

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.messages.evaluation.price_curve import N_PRICES

# At the highest price hardly anybody gets an action that costs more. It is this many times the root
# mean square of effects per cost; larger effects are rare.
_HIGHEST_EFFECTS = 8.0
# Degrees of freedom of Student's t: some rows gain far more for their cost than others do.
_FREEDOM = 3.0
_N_QUANTILES = 4 * N_PRICES
# A price exceeds the one before by at least this share of the highest price.
_LEAST_STEP = 1e-9


def placed_prices(
    means: FloatArray, covariances: FloatArray, costs: FloatArray, known: BoolArray
) -> FloatArray:  # (N_PRICES,)
    """Zero, quantiles of the prices at which decisions change, and one that hardly any row pays.

    `means` (n_actions,) and `covariances` are those of the policy's index, and `costs` are mean
    costs, all by action.
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
    # If no row is expected to pay any price, put more prices near zero.
    points = points if len(points) else top * np.geomspace(1e-3, 1.0, N_PRICES)[:-1]
    between = np.quantile(points, (np.arange(N_PRICES - 2) + 0.5) / (N_PRICES - 2))
    return _rising(np.concatenate([[0.0], between, [top]]), _LEAST_STEP * top)


def _rising(prices: FloatArray, step: float) -> FloatArray:
    """The prices, with a price that equals the one before raised by a small step."""
    steps = step * np.arange(len(prices))
    found: FloatArray = np.maximum.accumulate(prices - steps) + steps
    return found
