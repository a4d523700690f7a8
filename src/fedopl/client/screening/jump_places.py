"""Where outcomes of one action jump: first on a coarse grid, then on a finer one nearby.

The finer search moves a cut past at least as many rows as a cell must have.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.screening.jump_statistics import (
    Corners,
    Jumps,
    SmoothResiduals,
    combined,
    strongest_by_part,
)
from fedopl.messages.learning.term_screening import NOT_THERE
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

    n_beyond: IntArray  # (n_rows,), how many cuts each row is beyond
    at_or_below: FloatArray  # (n_versions, n_cuts), rows
    first: IntArray  # places of the cuts in the coarse grid

    @classmethod
    def of(cls, numbers: FloatArray, knots: tuple[float, ...], rows: SmoothResiduals) -> "_Grid":
        cuts = np.array(candidate_cuts(knots))
        n_beyond = np.searchsorted(cuts, numbers)
        shape = rows.has_fold.shape[1], len(cuts) + 1
        cell = np.ravel_multi_index((rows.folds, n_beyond), shape)
        counts = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
        at_or_below = np.cumsum(rows.has_fold @ counts, axis=1)[:, :-1]
        return cls(n_beyond, at_or_below, np.array(first_looked_at(knots), np.int64))

    @property
    def n_cuts(self) -> int:
        return len(self.at_or_below[0])

    @cached_property
    def parts(self) -> dict[int, IntArray]:
        """By part of the grid, the places of the coarse cuts in it."""
        of_cut = np.array([part_of_grid(int(cut), self.n_cuts) for cut in self.first])
        return {part: self.first[of_cut == part] for part in np.unique(of_cut).tolist()}

    def near(self, cut: int, least: int, version: int) -> IntArray:
        """The places of this cut and of those around it, with enough rows between neighbours."""
        found, below = [cut], self.at_or_below[version]
        for way in (-1, 1):
            last = cut
            for place in range(cut + way, cut + way * FIRST_ONE_IN, way):
                inside = 0 <= place < self.n_cuts
                if inside and abs(below[place] - below[last]) >= least:
                    found.append(last := place)
        return np.sort(found)

    def bins(self, places: IntArray) -> IntArray:  # (n_rows,)
        """The number of these cuts that each row is beyond."""
        return np.searchsorted(places, np.arange(self.n_cuts + 1))[self.n_beyond]


class JumpPlaces:
    """Where the outcomes of these rows jump beyond smooth terms, by version."""

    def __init__(
        self, residuals: SmoothResiduals, contexts: FloatArray, terms: Terms, minimum_cell: int
    ) -> None:
        self._residuals, self._minimum_cell = residuals, minimum_cell
        self._beside: dict[tuple[int, ...], SmoothResiduals] = {}
        self._sources = [(), *terms.sources[: residuals.smooth.shape[1] - 1]]
        places = {terms.features.index(name): own for name, own in terms.basis.knots.items()}
        self._grids = {
            place: _Grid.of(contexts[:, place], knots, residuals)
            for place, knots in places.items()
            if first_looked_at(knots)
        }
        self._multiplied = {
            frozenset(map(terms.features.index, pair)) for pair in terms.basis.multiplied
        }

    def lines(self, told_from: float) -> list[list[Line]]:
        """By version, each part of a grid, or of two, whose middle is a jump, at its largest."""
        pairs = (pair for pair in combinations(sorted(self._grids), 2))
        multiplied = (pair for pair in pairs if frozenset(pair) in self._multiplied)
        found: list[list[Line]] = [[] for _ in self._residuals.n_rows]
        for places in (*((place,) for place in self._grids), *multiplied):
            parts = [self._grids[place].parts for place in places]
            statistics = partial(self._statistics, places)
            for version, cuts, *told in strongest_by_part(statistics, parts, told_from):
                found[version].append(_line(places, cuts, told))
        return found

    def closer(self, lines: Sequence[Sequence[Line]]) -> list[list[Line]]:
        """The same jumps of each version, at the nearby places where they are largest."""
        where: dict[tuple[int, ...], list[tuple[int, Line]]] = {}
        for version, own in enumerate(lines):
            for line in own:
                places = tuple(int(place) for place in line[:4:2] if place != NOT_THERE)
                where.setdefault(places, []).append((version, line))
        found = {
            (version, *line[:4]): closer
            for places, own in where.items()
            for (version, line), closer in zip(own, self._closer(places, own), strict=True)
        }
        return [[found[version, *line[:4]] for line in own] for version, own in enumerate(lines)]

    def _closer(self, places: Sequence[int], lines: list[tuple[int, Line]]) -> Iterator[Line]:
        """The same for lines, with their versions, that are all about these numbers."""
        grids, least = [self._grids[place] for place in places], max(self._minimum_cell, 1)
        near = []
        for version, line in lines:
            at = zip(grids, map(int, line[1::2]), strict=False)
            near.append([grid.near(cut, least, version) for grid, cut in at])
        cuts = [np.unique(np.concatenate(along)) for along in zip(*near, strict=True)]
        inside = [combined(list(map(np.searchsorted, cuts, own))) for own in near]
        together = tuple(np.concatenate(along) for along in zip(*inside, strict=True))
        shape = tuple(map(len, cuts))  # lines of several versions are near the same cuts
        each_once, place = np.unique(np.ravel_multi_index(together, shape), return_inverse=True)
        statistics = self._statistics(places, cuts).at(*np.unravel_index(each_once, shape))
        found = statistics[:, place]
        ends = np.cumsum([len(flat[0]) for flat in inside])[:-1]
        for (version, line), flat, each in zip(
            lines, inside, np.split(found, ends, axis=1), strict=True
        ):
            best = int(np.argmax(np.sign(line[-1]) * each[version]))
            chosen = [int(own[along[best]]) for own, along in zip(cuts, flat, strict=True)]
            yield _line(places, chosen, [float(each[version, best]), line[-1]])

    def _statistics(self, places: Sequence[int], cuts: Sequence[IntArray]) -> Jumps | Corners:
        """The statistics of the cuts of one number, or of two."""
        beside = self._beside.get(tuple(places))
        if beside is None:  # smooth terms of these numbers alone
            columns = [k for k, own in enumerate(self._sources) if set(own) <= set(places)]
            beside = self._beside[tuple(places)] = self._residuals.only(columns)
        bins = [self._grids[place].bins(own) for place, own in zip(places, cuts, strict=True)]
        least = max(self._minimum_cell, LEAST_BESIDE)
        if len(places) == 1:
            return Jumps(beside, bins[0], len(cuts[0]), least)
        return Corners(beside, bins, [len(own) for own in cuts], least)


def _line(places: Sequence[int], cuts: Sequence[int], told: Sequence[float]) -> Line:
    """The places of numbers and cuts, then the statistics."""
    both = [number for pair in zip(places, cuts, strict=True) for number in map(float, pair)]
    return [*both, *[NOT_THERE] * (4 - len(both)), *told]
