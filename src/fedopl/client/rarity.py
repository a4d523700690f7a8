"""Rare values: a feature that few rows have beside the usual value gives those rows away in sums.

If one row of a cell has x_j = 1 and all others have 0, then Σ x_j·(x, 1, y) over the cell is that
row. So before anything is summed, a value that fewer than `minimum_cell` rows of the sum have is
taken for the one that the others have.
"""

import numpy as np

from fedopl.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.logged_data import LoggedData


def without_rare_values(data: LoggedData, rows: BoolArray, minimum: int) -> LoggedData:
    """The data, in which values that few of these rows have beside the usual one are that one."""
    return without_rare_cells(data, rows, np.zeros(int(rows.sum()), np.int64), minimum)


def without_rare_cells(
    data: LoggedData, rows: BoolArray, cells: IntArray, minimum: int
) -> LoggedData:
    """The same in each cell by itself; `cells` says which one each of these rows is in.

    Sums over all cells are known, too, so what is changed must not be few rows either: then the
    value is changed in further cells.
    """
    contexts = data.contexts[rows]
    changed = False
    for feature in range(data.n_features) if minimum > 1 and len(contexts) else ():
        column = contexts[:, feature]
        minority, other = _minority(column, cells)
        few = np.bincount(cells[minority], minlength=cells.max() + 1)
        rare = minority & _to_change(few, minimum)[cells]
        if rare.any():
            contexts[rare, feature] = other[rare]
            changed = True
    return _with_contexts(data, rows, contexts) if changed else data


def _minority(column: FloatArray, cells: IntArray) -> tuple[BoolArray, FloatArray]:
    """The rows with the rarer value of two in their cell, or that differ from what most have.

    Beside them what they are taken for. Numbers that vary have no such rows.
    """
    low, high = column.min(), column.max()
    is_high = column == high
    if low < high and (is_high | (column == low)).all():
        mostly_high = 2 * np.bincount(cells[is_high], minlength=cells.max() + 1) > np.bincount(
            cells
        )
        return is_high != mostly_high[cells], np.where(mostly_high, high, low)[cells]
    usual = np.median(column)
    differs: BoolArray = column != usual
    if 2 * differs.sum() >= len(column):
        differs = np.zeros(len(column), bool)
    return differs, np.full(len(column), usual)


def _to_change(counts: IntArray, minimum: int) -> BoolArray:  # (n_cells,)
    """The cells with a few such rows, and further ones until these are not few all together."""
    chosen: BoolArray = (counts > 0) & (counts < minimum)
    for cell in np.argsort(np.where(counts > 0, counts, np.iinfo(np.int64).max), kind="stable"):
        if not 0 < counts[chosen].sum() < minimum:
            break
        chosen[cell] = counts[cell] > 0
    return chosen


def _with_contexts(data: LoggedData, rows: BoolArray, contexts: FloatArray) -> LoggedData:
    whole = np.array(data.contexts)
    whole[rows] = contexts
    return LoggedData(
        whole,
        np.array(data.action_names)[data.actions],
        data.rewards,
        data.propensities,
        action_names=data.action_names,
        feature_names=data.feature_names,
        weights=data.weights,
        groups=data.groups,
    )
