"""Rare values: a feature that few rows have beside the usual value gives those rows away in sums.

If one row of a cell has x_j = 1 and all others have 0, then Σ x_j·(x, 1, y) over the cell is that
row. So a value that fewer than `minimum_cell` training rows have is taken for the usual one before
anything is summed, and a cell is told only where such groups are empty or large enough.
"""

from dataclasses import dataclass

import numpy as np

from fedopl.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.logged_data import LoggedData


def without_rare_values(data: LoggedData, rows: BoolArray, minimum: int) -> LoggedData:
    """The data, in which values that few of these rows have beside the usual one are that one."""
    if minimum < 2:
        return data
    usual = _usual(data.contexts[rows])
    unusual = (data.contexts != usual) & rows[:, None]  # (n_rows, n_features)
    few = unusual.sum(axis=0)
    rare = (few > 0) & (few < minimum)
    if not rare.any():
        return data
    return LoggedData(
        np.where(unusual & rare, usual, data.contexts),
        data.actions,
        data.rewards,
        data.propensities,
        action_names=data.action_names,
        feature_names=data.feature_names,
        weights=data.weights,
        groups=data.groups,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Groups:
    """Rows that share a value that sums could single out: how many there are in each cell."""

    counts: IntArray  # (n_groups, n_folds, n_actions)
    minimum: int

    @property
    def allowed(self) -> BoolArray:  # (n_folds, n_actions)
        """The cells in which every group is empty or large enough."""
        allowed: BoolArray = ((self.counts == 0) | (self.counts >= self.minimum)).all(axis=0)
        return allowed

    def few_left_out(self, told: BoolArray) -> IntArray:  # (n_folds, n_actions)
        """In each told cell, how many rows of groups that only few rows are left out of."""
        left_out = self.counts[:, ~told].sum(axis=1)
        few = (left_out > 0) & (left_out < self.minimum)
        return np.asarray(self.counts[few].sum(axis=0) * told)


def groups_of(
    data: LoggedData, rows: BoolArray, cells: IntArray, shape: tuple[int, int], minimum: int
) -> Groups:
    """Count the groups in each cell; `cells` says which one each of these rows is in."""
    contexts = data.contexts[rows]
    counts = [
        np.bincount(cells[group], minlength=shape[0] * shape[1]).reshape(shape)
        for column in (contexts.T if minimum > 1 else ())
        for group in _groups_in(column)
    ]
    return Groups(counts=np.array(counts, np.int64).reshape(-1, *shape), minimum=minimum)


def _groups_in(column: FloatArray) -> list[BoolArray]:
    """Both sides of a column with two values; those who differ where most have the same."""
    low, high = column.min(), column.max()
    is_low, is_high = column == low, column == high
    if low < high and (is_low | is_high).all():
        return [is_low, is_high]
    differs: BoolArray = column != np.median(column)
    return [differs] if 0 < differs.sum() < len(column) / 2 else []


def _usual(contexts: FloatArray) -> FloatArray:  # (n_features,)
    """The value of most rows, where one has most: then it is the median."""
    usual: FloatArray = np.median(contexts, axis=0)
    return usual
