"""Where a number may jump: round values around its knots, which everybody has the same.

They reach beyond the outer knots by a quarter of what lies between these: few rows are further out,
and what few rows show is not looked for. One in five of them, the roundest, is looked at first.
"""

import math
from functools import lru_cache

# The grid of a number is divided into so many parts, in each of which one place is told.
N_PARTS_OF_GRID = 8
FIRST_ONE_IN = 5
_MOST_CUTS = 96 * FIRST_ONE_IN
_REACH = 0.25
_ROUND = (1.0, 2.0, 2.5, 4.0, 5.0, 8.0, 10.0)


def candidate_cuts(knots: tuple[float, ...]) -> tuple[float, ...]:
    """The values that rows may be divided at, rising."""
    return _grid(knots)[0]


def first_looked_at(knots: tuple[float, ...]) -> tuple[int, ...]:
    """Which of these are looked at first, by their places."""
    return _grid(knots)[1]


def part_of_grid(cut: int, n_cuts: int) -> int:
    """In which part of the grid a cut is, by its place."""
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
