"""Weights that make rows resemble another population, given only its means and mean squares.

Entropy balancing (Hainmueller, 2012): among all weights under which every feature has the other
population's mean and mean square, it finds the weights nearest to equal ones, w = exp(ηᵀ(B(x) −
m)). They minimise log Σ wᵢ in η, and Newton's method finds the minimum.
"""

from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.decompositions import solve
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

    @property
    def effective_rows(self) -> float:
        """The number of rows of equal weight with equally precise means: (Σw)²/Σw²."""
        return rows_behind(self.weights)


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
    found = _weights(columns, np.log(own / own.sum()))
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


def _weights(columns: FloatArray, log_base: FloatArray) -> FloatArray:  # (n_rows,)
    """exp(ηᵀ(B − m)) at the η that minimises the logarithm of their sum plus a ridge on η."""
    eta = np.zeros(columns.shape[1])
    value, weights = _at(eta, columns, log_base)
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
            lower, found = _at(eta + part * step, columns, log_base)
            if lower <= value - 1e-4 * part * gain:
                break
            part /= 2
        else:
            break
        eta, value, weights = eta + part * step, lower, found
    return weights


def _at(eta: FloatArray, columns: FloatArray, log_base: FloatArray) -> tuple[float, FloatArray]:
    """The logarithm of the sum plus its ridge, and weights that add up to one."""
    exponents = columns @ eta + log_base
    largest = exponents.max()
    raised = np.exp(exponents - largest)
    total = raised.sum()
    value = float(largest + np.log(total) + _RIDGE / 2 * (eta @ eta))
    return value, raised / total
