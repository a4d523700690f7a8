"""Where a number may jump: round values around its knots, which everybody has the same.

They reach beyond the outer knots by a quarter of what lies between these: few rows are further out,
and what few rows show is not looked for.
"""

import math
from functools import lru_cache

# The grid of a number is divided into so many parts, in each of which one place is told.
N_PARTS_OF_GRID = 8
_MOST_CUTS = 96
_REACH = 0.25
_ROUND = (1.0, 2.0, 2.5, 4.0, 5.0, 8.0, 10.0)


@lru_cache(1024)
def candidate_cuts(knots: tuple[float, ...]) -> tuple[float, ...]:
    """The values that rows may be divided at, rising."""
    beyond = _REACH * (knots[-1] - knots[0])
    low, high = knots[0] - beyond, knots[-1] + beyond
    least = (high - low) / _MOST_CUTS
    size = math.floor(math.log10(least))
    step = next(one for one in _ROUND if one * 10.0**size >= least * (1 - 1e-9))
    digits = 1 - size
    places = range(math.ceil(low / (step * 10.0**size)), math.floor(high / (step * 10.0**size)) + 1)
    return tuple(round(place * step * 10.0**size, digits) + 0.0 for place in places)


def part_of_grid(cut: int, n_cuts: int) -> int:
    """In which part of the grid a cut is, by its place."""
    return cut * N_PARTS_OF_GRID // n_cuts
