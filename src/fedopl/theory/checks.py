"""Checks of inputs that all formulas of the theory share."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import FloatArray, IntArray, check_finite, check_positive, float_array
from fedopl.base.errors import DataError, OptionError

SUM_TOLERANCE = 1e-9


def positive(value: float, name: str) -> float:
    """The value, if it is a finite number above zero."""
    check_positive(value, name)
    return value


def not_negative(value: float, name: str) -> float:
    """The value, if it is zero or more; infinity is allowed: a divergence may not exist."""
    if not value >= 0:
        raise OptionError(f"{name}: expected 0 or more, came {value:g}")
    return value


def share(value: float, name: str) -> float:
    """The value, if it lies from 0 to 1."""
    if not 0 <= value <= 1:
        raise OptionError(f"{name}: expected a number from 0 to 1, came {value:g}")
    return value


def probability(value: float, name: str) -> float:
    """The value, if it lies above 0 and is at most 1."""
    if not 0 < value <= 1:
        raise OptionError(f"{name}: expected a probability above 0 and at most 1, came {value:g}")
    return value


def whole(value: int, name: str, least: int = 1) -> int:
    """The value, if it is a whole number that is large enough."""
    if value != int(value) or value < least:
        raise OptionError(f"{name}: expected a whole number of at least {least}, came {value:g}")
    return int(value)


def check_mixture_weights(weights: Mapping[str, float], rows: Mapping[str, int]) -> None:
    """Refuse weights that are not a distribution over the clients, and clients without rows."""
    if set(weights) != set(rows):
        raise OptionError(
            f"weights: for {', '.join(sorted(weights))}, but rows for {', '.join(sorted(rows))}"
        )
    check_weights(np.array(list(weights.values()), dtype=np.float64), "weights")
    empty = sorted(name for name, count in rows.items() if count < 1)
    if empty:
        raise OptionError(f"rows: expected at least one row of every client, none of {empty}")


def check_weights(weights: FloatArray, name: str) -> None:
    """Refuse weights that are negative or do not add up to one."""
    if not np.all(weights >= 0):
        raise OptionError(f"{name}: expected shares of 0 or more")
    total = math.fsum(weights)
    if abs(total - 1) > SUM_TOLERANCE:
        raise OptionError(f"{name}: expected shares that add up to 1, they add up to {total:g}")


def score_matrix(scores: ArrayLike) -> FloatArray:
    """Scores as a finite (n_rows, n_actions) array."""
    matrix = float_array(scores, "scores", 2)
    check_finite(matrix, "scores")
    return matrix


def policy_decisions(decisions: ArrayLike, n_rows: int, n_actions: int) -> IntArray:
    """Decisions of several policies as action codes, (n_policies, n_rows)."""
    codes = np.asarray(decisions)
    if codes.dtype.kind not in "iu" or codes.ndim != 2 or codes.shape[1] != n_rows:
        raise DataError(
            f"decisions: expected action codes of shape (n_policies, {n_rows}), "
            f"came {codes.dtype} of shape {codes.shape}"
        )
    if not len(codes):
        raise DataError("decisions: expected at least one policy, came none")
    if codes.size and (codes.min() < 0 or codes.max() >= n_actions):
        raise DataError(f"decisions: expected codes from 0 to {n_actions - 1}, came others")
    return codes.astype(np.int64, copy=False)


def weights_of_rows(row_weights: ArrayLike, n_rows: int) -> FloatArray:
    """Row weights as a finite (n_rows,) array."""
    weights = float_array(row_weights, "row_weights", 1)
    if len(weights) != n_rows:
        raise DataError(f"row_weights: expected {n_rows} as there are scores, came {len(weights)}")
    check_finite(weights, "row_weights")
    return weights
