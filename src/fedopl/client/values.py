"""The value of a policy on one client: the mean score of what it would have done."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from fedopl.arrays import FloatArray, IntArray, check_length
from fedopl.client.scores import Scores
from fedopl.errors import DataError
from fedopl.estimates import Estimate
from fedopl.labels import quoted


def estimate_value(scores: Scores, decisions: ArrayLike | str) -> Estimate:
    """Q̂(π) = mean of Γ̂(π(x)), with a standard error that allows for weights and groups.

    `decisions` are action codes, one for each row, or the name of one action for every row.
    Rows whose decision has no score are left out, and `n_rows` counts those that remain.
    """
    codes = _codes(scores, decisions)
    return mean_estimate(scores.values[np.arange(scores.n_rows), codes], scores)


def mean_estimate(values: FloatArray, scores: Scores) -> Estimate:
    """The weighted mean of one number per scored row; NaN rows are left out."""
    kept = np.isfinite(values)
    if not kept.any():
        raise DataError("value: none of the rows has a score for the action decided on")
    values = values[kept]
    weights = np.ones(len(values)) if scores.weights is None else scores.weights[kept]
    mean = float(np.average(values, weights=weights))
    influence = weights * (values - mean) / weights.sum()
    if scores.groups is not None:
        _, clusters = np.unique(scores.groups[kept], return_inverse=True)
        influence = np.bincount(clusters, influence)
    free = len(influence) - 1
    correction = (free + 1) / free if free else np.inf
    error = float(np.sqrt(correction * np.sum(influence**2))) if free else np.inf
    return Estimate(value=mean, standard_error=error, n_rows=len(values), degrees_of_freedom=free)


def _codes(scores: Scores, decisions: ArrayLike | str) -> IntArray:
    names: Sequence[str] = scores.action_names
    if isinstance(decisions, str):
        if decisions not in names:
            raise DataError(f"decisions: '{decisions}' is not an action; there are {quoted(names)}")
        return np.full(scores.n_rows, names.index(decisions))
    codes = np.asarray(decisions)
    if codes.ndim != 1 or codes.dtype.kind not in "iu":
        raise DataError(
            f"decisions: expected action codes of shape (n_rows,), came {codes.dtype} {codes.shape}"
        )
    check_length(codes, "decisions", scores.n_rows)
    if codes.min() < 0 or codes.max() >= len(names):
        raise DataError(
            f"decisions: expected codes 0 to {len(names) - 1}, came {codes.min()} to {codes.max()}"
        )
    return codes
