"""Protects a few rows that have none of some flags: sums of the flags would disclose them.

Suppose that each row is on one of three wards. The third ward has two of the rows, and no flag of
its own. Then 1 − x₁ − x₂ is one in these two rows and zero elsewhere. So take flags of which each
row has at most one. If only a few rows of a cell have none of them, these rows get the commonest
flag.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.disclosure.rare_values import ContextPart, ContextParts, cells_to_mask
from fedopl.client.disk.passes import totals_of

Flag = tuple[int, float]  # a feature of two values, and the value that is meant


@dataclass(frozen=True, eq=False, kw_only=True)
class LeftOver:
    """Flags, the commonest first, and the cells in which few rows have none of them."""

    flags: tuple[Flag, ...]
    masked: BoolArray  # (n_cells,)

    def __call__(self, contexts: FloatArray, cells: IntArray) -> FloatArray:  # shaped as contexts
        """The contexts after masking; the same array if nothing is masked."""
        few = self.masked[cells] & _has_none(self.flags, contexts)
        if not few.any():
            return contexts
        feature, value = self.flags[0]
        masked = contexts.copy()
        masked[few, feature] = value
        return masked


def left_over(
    parts: ContextParts, values: Mapping[int, tuple[float, ...]], n_cells: int, minimum: int
) -> tuple[LeftOver, ...]:
    """Sets of flags that few rows have none of, found in one pass or two; `values` by feature."""
    if len(values) < 2:
        return ()
    # First the flags of all higher values, then those of lower ones in the same order.
    flags = [(feature, own[side]) for side in (1, 0) for feature, own in values.items()]
    found = {
        tuple(flags[place] for place in places): np.zeros(n_cells, np.int64)
        for both in _together(parts, flags[: len(values)]).values()
        for places in sorted(_sets(both, minimum))
    }
    for more in totals_of(parts(), partial(_counts_of, tuple(found), n_cells)) if found else ():
        for counts, own in zip(found.values(), more, strict=True):
            counts += own
    return tuple(
        LeftOver(flags=own, masked=masked)
        for own, counts in found.items()
        if (masked := cells_to_mask(counts, minimum)).any()
    )


def _counts_of(
    sets: tuple[tuple[Flag, ...], ...], n_cells: int, parts: Iterable[ContextPart]
) -> IntArray:  # (n_sets, n_cells)
    """Rows of each cell that have none of each set of flags."""
    counts = np.zeros((len(sets), n_cells), np.int64)
    for contexts, cells in parts:
        for found, own in zip(counts, sets, strict=True):
            found += np.bincount(cells[_has_none(own, contexts)], minlength=n_cells)
    return counts


def _has_none(flags: tuple[Flag, ...], contexts: FloatArray) -> BoolArray:  # (n_rows,)
    return reduce(np.logical_and, (contexts[:, feature] != value for feature, value in flags))


def _together(parts: ContextParts, flags: Sequence[Flag]) -> dict[int, FloatArray]:
    """By cell, how many rows have both of two flags; after these, one that all rows have."""
    found: dict[int, FloatArray] = {}
    for more in totals_of(parts(), partial(_together_in, flags)):
        for cell, both in more.items():
            found[cell] = found.get(cell, 0.0) + both
    return found


def _together_in(flags: Sequence[Flag], parts: Iterable[ContextPart]) -> dict[int, FloatArray]:
    features, values = zip(*flags, strict=True)
    found: dict[int, FloatArray] = {}
    for contexts, cells in parts:
        has = np.ones((len(contexts), len(flags) + 1))
        has[:, :-1] = contexts[:, features] == values
        for cell in np.unique(cells).tolist():
            own = has[cells == cell]
            found[cell] = found.get(cell, 0.0) + own.T @ own
    return found


def _sets(both: FloatArray, minimum: int) -> set[tuple[int, ...]]:
    """Sets of flags such that no row of the cell has two of them, and few rows have none."""
    high, n_rows, n_features = both[-1, :-1], both[-1, -1], len(both) - 1
    counts = np.concatenate([high, n_rows - high])
    high_both = both[:-1, :-1]
    high_low = high[:, None] - high_both
    low_both = n_rows - high[:, None] - high[None, :] + high_both
    apart = np.block([[high_both, high_low], [high_low.T, low_both]]) == 0
    rest = n_rows - counts[:, None] - counts[None, :]
    few = apart & (rest > 0) & (rest < minimum)
    pairs = np.argwhere(few).tolist()
    found = {(first, second) for first, second in pairs if counts[first] >= counts[second]}
    return found | _grown(high, apart[:n_features, :n_features], n_rows, minimum)


def _grown(
    counts: FloatArray, apart: BoolArray, n_rows: float, minimum: int
) -> set[tuple[int, ...]]:
    """Sets grown from each flag by the commonest that excludes the others, until few are left."""
    order = np.argsort(-counts, kind="stable")
    found, seen = set(), set()
    for first in order.tolist():
        if first in seen or not counts[first]:
            continue
        chosen, left, free = [first], n_rows - counts[first], apart[first] & (counts > 0)
        while left >= minimum and (more := order[free[order]]).size:
            chosen.append(int(more[0]))
            left, free = left - counts[more[0]], free & apart[more[0]]
        seen.update(chosen)
        if 0 < left < minimum and len(chosen) > 1:
            found.add(tuple(chosen))
    return found
