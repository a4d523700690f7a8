"""The value of a policy at one client: the mean score of what it would have done."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import FloatArray, IntArray, check_length
from fedopl.base.errors import DataError
from fedopl.base.estimates import Estimate
from fedopl.base.labels import quoted
from fedopl.client.scoring.scores import Scores

# Products of columns are summed over this many rows at a time, which fit in a processor's cache.
ROWS_AT_ONCE = 4096
TOLD = ("rows", "degrees_of_freedom", "means", "variances")  # of a column


@dataclass(frozen=True, eq=False, kw_only=True)
class JointEstimate:
    """Means over the same rows, and the covariance matrix of those means."""

    n_rows: int
    degrees_of_freedom: int
    means: FloatArray  # (n_columns,)
    covariances: FloatArray  # (n_columns, n_columns), zero if there is only one row

    @property
    def first_column(self) -> tuple[float, float, float, float]:
        """Rows, degrees of freedom, mean and variance of the first column, often the only one."""
        rows, freedom = float(self.n_rows), float(self.degrees_of_freedom)
        return rows, freedom, float(self.means[0]), float(self.covariances[0, 0])


class JointSums:
    """Sums from which joint estimates are computed, chunk by chunk.

    Rows of a group vary together: sums are kept by group, and their squares are summed.
    """

    def __init__(self) -> None:
        self._n_rows = 0
        self._origin: FloatArray | None = None  # near the means, which saves digits
        self._units = 0  # rows, if there are no groups
        # Σw·(1, v) and Σw²·(1, v)(1, v)ᵀ, where v are the values less the origin.
        self._sums: Any = 0.0
        self._squares: Any = 0.0
        self._by_group: FloatArray | None = None  # (n_groups, 1 + n_columns)  Σw·(1, v)

    def add(self, values: FloatArray, weights: FloatArray | None, groups: IntArray | None) -> None:
        """Add the rows that are known in all columns."""
        known = np.isfinite(values).all(axis=1)
        if not known.any():
            return
        columns = np.ascontiguousarray(values[known].T)
        weight = np.ones(columns.shape[1]) if weights is None else weights[known]
        if self._origin is None:
            self._origin = (columns * weight).sum(axis=1) / weight.sum()
        weighted = np.vstack([weight, weight * (columns - self._origin[:, None])])
        self._n_rows += len(weight)
        self._sums += weighted.sum(axis=1)
        if groups is None:
            self._add_squares(weighted)
        else:
            self._add_groups(weighted.T, groups[known])

    def plus(self, other: "JointSums") -> "JointSums":
        """Both together, about the origin of these, which are written over."""
        if self._origin is None or other._origin is None:
            return other if self._origin is None else self
        # With v' = v + d: Σw·v' = Σw·v + d·Σw, and so for products. No matrix product: a column's
        # bits must not depend on how many stand beside it.
        moved = np.append(0.0, other._origin - self._origin)
        self._n_rows += other._n_rows
        self._sums = self._sums + (other._sums + moved * other._sums[0])
        if other._by_group is not None:
            assert self._by_group is not None  # noqa: S101  (rows have groups, or have none)
            by_group = other._by_group + moved * other._by_group[:, :1]
            self._by_group = _together(self._by_group, by_group)
            return self
        crossed = np.outer(moved, other._squares[0])
        both = np.outer(moved, moved) * other._squares[0, 0]
        self._units += other._units
        self._squares = self._squares + (other._squares + crossed + crossed.T + both)
        return self

    def _add_squares(self, weighted: FloatArray) -> None:  # (1 + n_columns, n_units)
        self._units += weighted.shape[1]
        self._squares += _products(weighted)

    def _add_groups(self, weighted: FloatArray, groups: IntArray) -> None:
        n_groups = int(groups.max()) + 1
        by_group = np.zeros((n_groups, weighted.shape[1]))
        np.add.at(by_group, groups, weighted)
        if self._by_group is not None:
            by_group = _together(by_group, self._by_group)
        self._by_group = by_group

    def estimate(self) -> JointEstimate | None:
        """Weighted means of each column over the rows known in all; None if there are none."""
        if self._origin is None:
            return None
        if self._by_group is not None:
            # A group without any known row is not a unit.
            self._add_squares(np.ascontiguousarray(self._by_group[self._by_group[:, 0] > 0].T))
        shift = self._sums[1:] / self._sums[0]
        crossed = np.outer(self._squares[0, 1:], shift)
        squared_weight = self._squares[0, 0] * np.outer(shift, shift)
        about_mean = self._squares[1:, 1:] - crossed - crossed.T + squared_weight
        free = self._units - 1
        # n/(n − 1), because deviations are from a mean of the same rows or groups.
        correction = (free + 1) / free if free else 0.0
        return JointEstimate(
            n_rows=self._n_rows,
            degrees_of_freedom=free,
            means=self._origin + shift,
            covariances=correction * about_mean / self._sums[0] ** 2,
        )


class ColumnSums:
    """Sums of several columns, each over the rows that are known in it."""

    def __init__(self, n_columns: int) -> None:
        self._sums = [JointSums() for _ in range(n_columns)]

    def add(self, values: FloatArray, weights: FloatArray | None, groups: IntArray | None) -> None:
        """Add rows (n_rows, n_columns)."""
        for own, column in zip(self._sums, values.T, strict=True):
            own.add(column[:, None], weights, groups)

    def told(self, needed: int) -> FloatArray:  # (len(TOLD), n_columns)
        """`TOLD` of each column; zeros where it has fewer rows than needed."""
        found = np.zeros((len(TOLD), len(self._sums)))
        for place, own in enumerate(self._sums):
            estimate = own.estimate()
            if estimate and estimate.n_rows >= needed:
                found[:, place] = estimate.first_column
        return found


def _together(first: FloatArray, second: FloatArray) -> FloatArray:  # (n_groups, n_columns)
    """Sums by group of both, of which one may know fewer groups."""
    longer, shorter = sorted([first, second], key=len, reverse=True)
    found = longer.copy()
    found[: len(shorter)] += shorter
    return found


def _products(columns: FloatArray) -> FloatArray:  # (n_columns, n_columns)
    """Σ_i c_i·c'_i for each two columns (n_columns, n_rows).

    This is not a matrix product. BLAS chooses its kernels by shape, so the bits of one pair of
    columns would depend on the number of other columns.
    """
    n_columns, n_rows = columns.shape
    found = np.zeros((n_columns, n_columns))
    for start in range(0, n_rows, ROWS_AT_ONCE):
        block = np.ascontiguousarray(columns[:, start : start + ROWS_AT_ONCE])
        for place, column in enumerate(block):
            found[place, place:] += (block[place:] * column).sum(axis=1)
    return found + np.triu(found, 1).T


def joint_estimate(
    values: FloatArray, weights: FloatArray | None, groups: IntArray | None
) -> JointEstimate | None:
    """Weighted means of each column over the rows known in all; None if there are none.

    Rows of a group vary together, so the covariances are those of sums by group.
    """
    sums = JointSums()
    sums.add(values, weights, groups)
    return sums.estimate()


def estimate_value(scores: Scores, decisions: ArrayLike | str) -> Estimate:
    """Q̂(π) = mean of Γ̂(π(x)), with a standard error that allows for weights and groups.

    `decisions` are action codes, one for each row, or the name of one action for every row. Rows
    whose decision has no score are left out, and `n_rows` counts those that remain.
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
