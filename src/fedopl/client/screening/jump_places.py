"""Where outcomes of one action jump: first on a coarse grid, then on a finer one nearby.

The finer search moves a cut past at least as many rows as a cell must have.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.screening.jump_statistics import (
    Corners,
    Jumps,
    SmoothResiduals,
    strongest_by_part,
)
from fedopl.messages.learning.jump_screening import NOT_THERE
from fedopl.policies.terms import Terms
from fedopl.policies.threshold_grid import (
    FIRST_ONE_IN,
    candidate_cuts,
    first_looked_at,
    part_of_grid,
)

# Fewer rows on one side of a threshold say little, whatever a client would release.
LEAST_BESIDE = 10

Line = list[float]  # the numbers in `JUMP_NUMBERS`


@dataclass(frozen=True, eq=False)
class _Grid:
    """One number of all rows, and the cuts at which rows may be divided."""

    numbers: FloatArray  # (n_rows,)
    cuts: FloatArray  # (n_cuts,)
    first: IntArray  # places of the cuts in the coarse grid

    @cached_property
    def parts(self) -> dict[int, IntArray]:
        """By part of the grid, the coarse cuts in it, by their places among the coarse cuts."""
        of_cut = np.array([part_of_grid(int(cut), len(self.cuts)) for cut in self.first])
        return {part: np.flatnonzero(of_cut == part) for part in np.unique(of_cut).tolist()}

    @cached_property
    def _at_or_below(self) -> IntArray:  # (n_cuts,), rows
        return np.searchsorted(np.sort(self.numbers), self.cuts, side="right")

    def near(self, cut: int, least: int) -> IntArray:
        """The places of this cut and of those around it, with enough rows between neighbours."""
        found = [cut]
        for way in (-1, 1):
            last = cut
            for place in range(cut + way, cut + way * FIRST_ONE_IN, way):
                inside = 0 <= place < len(self.cuts)
                if inside and abs(self._at_or_below[place] - self._at_or_below[last]) >= least:
                    found.append(last := place)
        return np.sort(found)

    def bins(self, places: IntArray) -> IntArray:  # (n_rows,)
        """The number of these cuts that each row is beyond."""
        return np.searchsorted(self.cuts[places], self.numbers)


class JumpPlaces:
    """Where the outcomes of these rows jump beyond smooth terms."""

    def __init__(
        self, residuals: SmoothResiduals, contexts: FloatArray, terms: Terms, minimum_cell: int
    ) -> None:
        self._residuals, self._minimum_cell = residuals, minimum_cell
        self._sources = [(), *terms.sources[: residuals.smooth.shape[1] - 1]]
        places = {terms.features.index(name): own for name, own in terms.basis.knots.items()}
        self._grids = {
            place: _Grid(
                contexts[:, place],
                np.array(candidate_cuts(knots)),
                np.array(first_looked_at(knots), np.int64),
            )
            for place, knots in places.items()
            if first_looked_at(knots)
        }
        self._multiplied = {
            frozenset(map(terms.features.index, pair)) for pair in terms.basis.multiplied
        }

    def lines(self, told_from: float) -> Iterator[Line]:
        """Each part of a grid, or of two, whose middle is a jump, with its largest jump."""
        pairs = (pair for pair in combinations(sorted(self._grids), 2))
        multiplied = (pair for pair in pairs if frozenset(pair) in self._multiplied)
        for places in (*((place,) for place in self._grids), *multiplied):
            grids = [self._grids[place] for place in places]
            statistics = self._statistics(places, [grid.first for grid in grids])
            parts = [grid.parts for grid in grids]
            for cuts, *told in strongest_by_part(statistics, parts, told_from):
                first = [int(grid.first[cut]) for grid, cut in zip(grids, cuts, strict=True)]
                yield _line(places, first, told)

    def closer(self, line: Line) -> Line:
        """The same jump, at the nearby place where it is largest."""
        places = [int(place) for place in line[:4:2] if place != NOT_THERE]
        near = [
            self._grids[place].near(int(cut), max(self._minimum_cell, 1))
            for place, cut in zip(places, line[1:4:2], strict=False)
        ]
        each = np.meshgrid(*[np.arange(len(own)) for own in near], indexing="ij")
        flat = [one.ravel() for one in each]
        found = self._statistics(places, near).at(*flat)
        best = int(np.argmax(np.sign(line[-1]) * found))
        cuts = [int(own[at[best]]) for own, at in zip(near, flat, strict=True)]
        return _line(places, cuts, [float(found[best]), line[-1]])

    def _statistics(self, places: Sequence[int], cuts: Sequence[IntArray]) -> Jumps | Corners:
        """The statistics of the cuts of one number, or of two."""
        beside = self._residuals.only(
            [k for k, own in enumerate(self._sources) if set(own) <= set(places)]
        )
        bins = [self._grids[place].bins(own) for place, own in zip(places, cuts, strict=True)]
        least = max(self._minimum_cell, LEAST_BESIDE)
        if len(places) == 1:
            return Jumps(beside, bins[0], len(cuts[0]), least)
        return Corners(beside, bins, [len(own) for own in cuts], least)


def _line(places: Sequence[int], cuts: Sequence[int], told: Sequence[float]) -> Line:
    """The places of numbers and cuts, then the statistics."""
    both = [number for pair in zip(places, cuts, strict=True) for number in map(float, pair)]
    return [*both, *[NOT_THERE] * (4 - len(both)), *told]
