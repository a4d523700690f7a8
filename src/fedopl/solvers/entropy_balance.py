"""Weights that make rows look like another population, of which only means and squares are known.

Entropy balancing (Hainmueller, 2012): of all weights under which every number has the other
population's mean and mean square, those nearest to equal ones, w = exp(ηᵀ(B(x) − m)). They are the
minimum of log Σ wᵢ in η, which Newton's method finds.
"""

from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.solvers.least_squares import effective_rows

# Keeps η finite where no weights reach the other population; far below what moves reachable ones.
_RIDGE = 1e-4
_MOST_STEPS = 200
# A step that would lower the logarithm by less than this changes nothing that can be seen.
_SMALLEST_GAIN = 1e-14
_SHORTEST = 1e-6  # part of a Newton step that is tried
# Variances below this share of the mean square are rounding.
_NO_VARIANCE = 1e-12


@dataclass(frozen=True, eq=False, kw_only=True)
class Balanced:
    """Weights of rows that add up to one, and how near they come to the other population."""

    weights: FloatArray  # (n_rows,)
    largest_gap: float  # in a mean or mean square, in standard deviations of the population

    @property
    def effective_rows(self) -> float:
        """The number of rows of equal weight with equally precise means: (Σw)²/Σw²."""
        return rows_behind(self.weights)


def rows_behind(weights: FloatArray) -> float:
    """(Σw)²/Σw²: as many as there are where all are equal, one where one has all the weight."""
    total, squares = np.asarray(weights.sum()), np.asarray(np.square(weights).sum())
    return float(effective_rows(total, squares))


def balance(
    contexts: FloatArray, means: FloatArray, squares: FloatArray, weights: FloatArray | None = None
) -> Balanced:
    """Weights under which contexts (n_rows, n_features) have these means and mean squares.

    Rows may count by weights of their own. Where no weights reach them, the gap says how far away
    the nearest stay.
    """
    columns = _columns(contexts, means, squares)
    own = np.ones(len(contexts)) if weights is None else weights
    found = _weights(columns, np.log(own / own.sum()))
    return Balanced(weights=found, largest_gap=float(np.abs(found @ columns).max(initial=0.0)))


def _columns(
    contexts: FloatArray, means: FloatArray, squares: FloatArray
) -> FloatArray:  # (n_rows, 2·n_features)
    """B(x) − m, measured from the population's means, in its standard deviations."""
    variances = np.maximum(squares - means**2, 0.0)
    known = variances > _NO_VARIANCE * squares
    # A number that never varies there is measured by how it varies here.
    own = contexts.var(axis=0) if len(contexts) else np.ones(len(means))
    scales = np.sqrt(np.where(known, variances, np.where(own > 0, own, 1.0)))
    apart = (contexts - means) / scales
    return np.hstack([apart, apart**2 - np.where(known, 1.0, 0.0)])


def _weights(columns: FloatArray, log_base: FloatArray) -> FloatArray:  # (n_rows,)
    """exp(ηᵀ(B − m)) at the minimum of the logarithm of their sum, with a ridge on η."""
    eta = np.zeros(columns.shape[1])
    value, weights = _at(eta, columns, log_base)
    for _ in range(_MOST_STEPS):
        mean = weights @ columns
        slope = mean + _RIDGE * eta
        hessian = (columns * weights[:, None]).T @ columns - np.outer(mean, mean)
        step = -np.linalg.solve(hessian + _RIDGE * np.eye(len(eta)), slope)
        gain = -float(slope @ step)
        if gain < _SMALLEST_GAIN:
            break
        part = 1.0
        while part > _SHORTEST:
            lower, found = _at(eta + part * step, columns, log_base)
            if lower <= value - 1e-4 * part * gain:
                break
            part /= 2
        else:
            break
        eta, value, weights = eta + part * step, lower, found
    return weights


def _at(eta: FloatArray, columns: FloatArray, log_base: FloatArray) -> tuple[float, FloatArray]:
    """The logarithm of the sum with its ridge, and weights that add up to one."""
    exponents = columns @ eta + log_base
    largest = exponents.max()
    raised = np.exp(exponents - largest)
    total = raised.sum()
    value = float(largest + np.log(total) + _RIDGE / 2 * (eta @ eta))
    return value, raised / total
