"""Policies that decide alike for all but a few rows are valued as one: the first that was told.

A twin's numbers are those of a policy that was told for itself, so that two answers differ in no
row or in enough of them, however many were asked for. What is told besides is which policies are
twins: one bit for each, where a refusal tells one for the query. Whoever moves a policy step by
step sees where it leaves its twin, so about where the row lies that makes it enough; refusals show
that, too, and how many policies and queries there may be caps how finely.
"""

from collections.abc import Sequence

import numpy as np

from fedopl.arrays import BoolArray, IntArray

# Policies that differ in enough of so many rows, spread over all, need not be compared further.
N_SAMPLED = 4096


def twins_among(
    decided: Sequence[IntArray], known: Sequence[IntArray], valued: BoolArray, least: int
) -> IntArray:  # (n_policies,)
    """For each policy the place, among the known and then the decided, of the one it is valued as.

    Policies are told apart where they differ in enough of all rows, and in none or enough of those
    they are valued on. The first that a policy is not told apart from is its twin, if there is one;
    twins are nobody's twin.
    """
    if not decided:
        return np.empty(0, np.int64)
    every, valued = _where_they_differ([*known, *decided], valued)
    sampled = np.flatnonzero(valued)
    looks = every[:, sampled[:: max(1, len(sampled) // N_SAMPLED)]]
    told = np.arange(len(every)) < len(known)
    twins = np.arange(len(known), len(every))
    for turn, place in enumerate(twins):
        alike = np.count_nonzero(looks[:place] != looks[place], axis=1) < least
        for other in np.flatnonzero(alike & told[:place]):
            if not _are_told_apart(every[place], every[other], valued, least):
                twins[turn] = other
                break
        told[place] = twins[turn] == place
    return twins


def _where_they_differ(every: Sequence[IntArray], valued: BoolArray) -> tuple[IntArray, BoolArray]:
    """The rows that some policies decide differently: policies near each other have few of them."""
    differ = np.zeros(len(valued), bool)
    for codes in every:
        differ |= codes != every[0]
    return np.array([codes[differ] for codes in every]), valued[differ]


def _are_told_apart(first: IntArray, second: IntArray, valued: BoolArray, least: int) -> bool:
    differ = first != second
    n_valued = np.count_nonzero(differ & valued)
    return bool(np.count_nonzero(differ) >= least and (n_valued == 0 or n_valued >= least))
