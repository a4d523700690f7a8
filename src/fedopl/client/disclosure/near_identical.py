"""Policies whose decisions differ on fewer than `minimum_cell` rows share one released value.

A policy that is near-identical to an earlier one gets the earlier one's numbers, so two released
values differ in no row or in enough of them, which prevents differencing. What is released besides
is which policies are near-identical: one bit for each, where a refusal is one bit for the query.
Whoever moves a policy in small steps sees where it stops being near-identical, so roughly where
the deciding row lies. Refusals would show that, too; the budgets of policies and queries limit how
finely it can be found.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray, compact_codes

Decides = Callable[[FloatArray], IntArray]
# Contexts of the rows to compare policies on, and which of these rows they are valued on.
ComparedParts = Iterable[tuple[FloatArray, BoolArray]]
# Most policies differ enough within the first few rows and need no further comparison.
FIRST_ROWS, MOST_ROWS = 4096, 1 << 16


def first_near_identical(
    known: Sequence[Decides], asked: Sequence[Decides], parts: ComparedParts, minimum: int
) -> IntArray:  # (n_asked,)
    """For each policy asked about, the first near-identical one, or itself; by position.

    Positions count the known policies, then those asked about. Two policies are distinct if they
    differ in at least `minimum` of all rows, and in none or at least `minimum` of those they are
    valued on. Only policies that are valued as themselves can stand for others.
    """
    differ, inside = differences(known, asked, parts, minimum)
    distinct = (differ >= minimum) & ((inside == 0) | (inside >= minimum))
    released = np.arange(len(distinct)) < len(known)
    stands_for = np.arange(len(known), len(distinct))
    for turn, position in enumerate(stands_for):
        alike = np.flatnonzero(released[:position] & ~distinct[:position, turn])
        stands_for[turn] = alike[0] if len(alike) else position
        released[position] = stands_for[turn] == position
    return stands_for


def differences(
    known: Sequence[Decides], asked: Sequence[Decides], parts: ComparedParts, minimum: int
) -> tuple[IntArray, IntArray]:  # (n_known + n_asked, n_asked) each
    """Rows in which each policy asked about differs from those before: of all, and of the valued.

    A pair is no longer counted once both numbers have reached the minimum.
    """
    every = [*known, *asked]
    shape = (len(every), len(asked))
    differ, inside = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    before = np.arange(len(every))[:, None] < len(known) + np.arange(len(asked))
    for contexts, valued in _growing(parts):
        open_pairs = before & ~((differ >= minimum) & (inside >= minimum))
        # Most queries end here, long before the last row.
        if not open_pairs.any():
            break
        codes = _codes(every, len(known), open_pairs, contexts)
        for turn in np.flatnonzero(open_pairs.any(axis=0)).tolist():
            others = np.flatnonzero(open_pairs[:, turn]).tolist()
            own = codes[len(known) + turn]
            found = np.stack([codes[other] for other in others]) != own
            differ[others, turn] += np.count_nonzero(found, axis=1)
            inside[others, turn] += np.count_nonzero(found & valued, axis=1)
    return differ, inside


def _growing(parts: ComparedParts) -> Iterator[tuple[FloatArray, BoolArray]]:
    """The same rows in blocks, small ones first."""
    size = FIRST_ROWS
    for contexts, valued in parts:
        start = 0
        while start < len(contexts):
            rows = slice(start, start + size)
            yield contexts[rows], valued[rows]
            start, size = start + size, min(2 * size, MOST_ROWS)


def _codes(
    every: Sequence[Decides], n_known: int, open_pairs: BoolArray, contexts: FloatArray
) -> dict[int, IntArray]:
    """The decisions of the policies that some open pair still compares, by position."""
    compared = np.asarray(open_pairs.any(axis=1))
    compared[n_known:] |= np.asarray(open_pairs.any(axis=0))
    positions = np.flatnonzero(compared).tolist()
    return {position: compact_codes(every[position](contexts)) for position in positions}
