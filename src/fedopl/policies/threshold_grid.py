"""Candidate thresholds of a number: round values around its knots, the same at all clients.

The candidates reach beyond the outer knots by a quarter of the distance between these. Few rows lie
further out, and effects seen in few rows are not searched for. One in five candidates, the
roundest, is examined first.
"""

import math
from functools import lru_cache

# The grid of a number has this many parts; one threshold is reported from each.
N_PARTS_OF_GRID = 8
FIRST_ONE_IN = 5
_MOST_CUTS = 96 * FIRST_ONE_IN
_REACH = 0.25
_ROUND = (1.0, 2.0, 2.5, 4.0, 5.0, 8.0, 10.0)


def candidate_cuts(knots: tuple[float, ...]) -> tuple[float, ...]:
    """The thresholds at which rows may be divided, in ascending order."""
    return _grid(knots)[0]


def first_looked_at(knots: tuple[float, ...]) -> tuple[int, ...]:
    """The positions of the candidates that are examined first."""
    return _grid(knots)[1]


def part_of_grid(cut: int, n_cuts: int) -> int:
    """The part of the grid that contains a cut, given by its position."""
    return cut * N_PARTS_OF_GRID // n_cuts


@lru_cache(1024)
def _grid(knots: tuple[float, ...]) -> tuple[tuple[float, ...], tuple[int, ...]]:
    beyond = _REACH * (knots[-1] - knots[0])
    low, high = knots[0] - beyond, knots[-1] + beyond
    least = (high - low) / _MOST_CUTS
    size = math.floor(math.log10(least))
    step = next(one for one in _ROUND if one * 10.0**size >= least * (1 - 1e-9))
    unit, digits = step * 10.0**size, 1 - size
    multiples = range(math.ceil(low / unit), math.floor(high / unit) + 1)
    cuts = tuple(round(times * unit, digits) + 0.0 for times in multiples)
    return cuts, tuple(at for at, times in enumerate(multiples) if times % FIRST_ONE_IN == 0)
