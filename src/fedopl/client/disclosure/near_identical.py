"""Policies that decide alike for all but a few rows are valued as one: the first that was told.

A twin's numbers are those of a policy that was told for itself, so that two answers differ in no
row or in enough of them, however many were asked for. What is told besides is which policies are
twins: one bit for each, where a refusal tells one for the query. Whoever moves a policy step by
step sees where it leaves its twin, so about where the row lies that makes it enough; refusals show
that, too, and how many policies and queries there may be caps how finely.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray, compact_codes

Decides = Callable[[FloatArray], IntArray]
# Contexts of rows to compare policies on, and which of these they are valued on.
Parts = Iterable[tuple[FloatArray, BoolArray]]
# After so few rows most policies are told apart, and need not be compared any further.
FIRST_ROWS, MOST_ROWS = 4096, 1 << 16


def twins_among(
    known: Sequence[Decides], asked: Sequence[Decides], parts: Parts, least: int
) -> IntArray:  # (n_asked,)
    """For each policy the place, among the known and then the asked, of the one it is valued as.

    Policies are told apart where they differ in enough of all rows, and in none or enough of those
    they are valued on. The first that a policy is not told apart from is its twin, if there is one;
    twins are nobody's twin.
    """
    differ, inside = differences(known, asked, parts, least)
    apart = (differ >= least) & ((inside == 0) | (inside >= least))
    told = np.arange(len(apart)) < len(known)
    twins = np.arange(len(known), len(apart))
    for turn, place in enumerate(twins):
        alike = np.flatnonzero(told[:place] & ~apart[:place, turn])
        twins[turn] = alike[0] if len(alike) else place
        told[place] = twins[turn] == place
    return twins


def differences(
    known: Sequence[Decides], asked: Sequence[Decides], parts: Parts, least: int
) -> tuple[IntArray, IntArray]:  # (n_known + n_asked, n_asked) each
    """In how many rows each policy asked about differs from those before it: of all, and inside.

    What is enough already is not counted any further.
    """
    every = [*known, *asked]
    shape = (len(every), len(asked))
    differ, inside = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    before = np.arange(len(every))[:, None] < len(known) + np.arange(len(asked))
    for contexts, valued in _growing(parts):
        open_pairs = before & ~((differ >= least) & (inside >= least))
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


def _growing(parts: Parts) -> Iterator[tuple[FloatArray, BoolArray]]:
    """A few rows first, then more at a time."""
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
    """What the policies that are still compared decide."""
    compared = np.asarray(open_pairs.any(axis=1))
    compared[n_known:] |= np.asarray(open_pairs.any(axis=0))
    places = np.flatnonzero(compared).tolist()
    return {place: compact_codes(every[place](contexts)) for place in places}
