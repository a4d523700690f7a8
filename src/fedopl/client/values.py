"""The value of a policy on one client: the mean score of what it would have done."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedopl.arrays import FloatArray, IntArray, check_length
from fedopl.client.scores import Scores
from fedopl.errors import DataError
from fedopl.estimates import Estimate
from fedopl.labels import quoted


@dataclass(frozen=True, eq=False, kw_only=True)
class JointEstimate:
    """Means over the same rows, and the covariance matrix of those means."""

    n_rows: int
    degrees_of_freedom: int
    means: FloatArray  # (n_columns,)
    covariances: FloatArray  # (n_columns, n_columns), zero where one row cannot tell


def joint_estimate(
    values: FloatArray, weights: FloatArray | None, groups: IntArray | None
) -> JointEstimate | None:
    """Weighted means of each column over the rows known in all; None if there are none.

    Rows of a group vary together: the covariances are those of sums by group.
    """
    known = np.isfinite(values).all(axis=1)
    if not known.any():
        return None
    values = values[known]
    shares = np.ones(len(values)) if weights is None else weights[known]
    shares = shares / shares.sum()
    means = shares @ values
    influence = shares[:, None] * (values - means)
    if groups is not None:
        _, clusters = np.unique(groups[known], return_inverse=True)
        by_cluster = np.zeros((int(clusters.max()) + 1, values.shape[1]))
        np.add.at(by_cluster, clusters, influence)
        influence = by_cluster
    free = len(influence) - 1
    correction = (free + 1) / free if free else 0.0
    return JointEstimate(
        n_rows=len(values),
        degrees_of_freedom=free,
        means=means,
        covariances=correction * influence.T @ influence,
    )


def estimate_value(scores: Scores, decisions: ArrayLike | str) -> Estimate:
    """Q̂(π) = mean of Γ̂(π(x)), with a standard error that allows for weights and groups.

    `decisions` are action codes, one for each row, or the name of one action for every row.
    Rows whose decision has no score are left out, and `n_rows` counts those that remain.
    """
    codes = _codes(scores, decisions)
    chosen = scores.values[np.arange(scores.n_rows), codes]
    found = joint_estimate(chosen[:, None], scores.weights, scores.groups)
    if found is None:
        raise DataError("value: none of the rows has a score for the action decided on")
    alone = found.degrees_of_freedom < 1
    return Estimate(
        value=float(found.means[0]),
        standard_error=np.inf if alone else float(np.sqrt(found.covariances[0, 0])),
        n_rows=found.n_rows,
        degrees_of_freedom=found.degrees_of_freedom,
    )


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
