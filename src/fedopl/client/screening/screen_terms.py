"""Answers to screening: which features interact, and where outcomes jump.

Jumps are looked for on a coarse grid, then on a finer one nearby. The finer search moves a cut past
at least as many rows as a cell must have.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.rows.chunks import Chunk
from fedopl.client.screening.jump_statistics import Jumps, SmoothResiduals
from fedopl.client.screening.product_statistics import product_tests
from fedopl.client.workspace import Workspace
from fedopl.messages.learning.term_screening import (
    JUMP_NUMBERS,
    MOST_JUMPS_TOLD,
    NOT_THERE,
    FoundTaken,
    JumpStatistics,
    ProductStatistics,
    ScreenJumps,
    ScreenProducts,
    TakeFound,
)
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.basis import FIRST_ONE_IN, candidate_cuts, first_looked_at, part_of_grid
from fedopl.policies.terms import Terms
from fedopl.study.screened_study import FoundTerms

# The most rows that are screened, over all actions. More rows would show hardly more.
MOST_ROWS_SCREENED = 100_000
# Weaker jumps are not worth a closer look: by chance, one in twenty is as strong.
LEAST_STATISTIC = 2.0
# Fewer rows on one side of a threshold say little, whatever a client would release.
LEAST_BESIDE = 10

Line = list[float]  # the numbers in `JUMP_NUMBERS`


def screen_products(space: Workspace, _query: ScreenProducts) -> ProductStatistics:
    """Which products of two features predict outcomes, by the actions with enough rows for that."""
    study, terms = space.study, space.study.terms
    each = [(without, _rows_per_action(space, without)) for without in study.left_out]
    enough = np.array([rows > study.n_features + 1 for _, rows in each])
    if terms is None or not enough.any():
        raise RefusedError(RefusalCode.TOO_MANY_PARAMETERS)
    tests = [
        product_tests(
            space.unscored_chunks,
            terms.scaled,
            study.n_actions,
            study.n_features,
            every=-(-space.n_training // MOST_ROWS_SCREENED),
            without=without,
        ).statistics
        for without, _ in each
    ]
    return ProductStatistics(statistics=np.where(enough[..., None], np.array(tests), 0.0))


def _rows_per_action(space: Workspace, without: int | None) -> IntArray:  # (n_actions,)
    """Training rows that took each action, perhaps without those of a fold."""
    rows = space.rows_per_action
    return rows if without is None else rows - space.rows_by_fold_action[without]


def take_found(space: Workspace, query: TakeFound) -> FoundTaken:
    """Confirm the terms that the door's study continued with; the answer is their number."""
    found = query.named(space.study)
    if found is None or found != FoundTerms.of(space.study):
        raise RefusedError(RefusalCode.MALFORMED)
    return FoundTaken(n_found=len(found.terms))


# --- jumps ----------------------------------------------------------------------------------------


def screen_jumps(space: Workspace, _query: ScreenJumps) -> JumpStatistics:
    """Where outcomes jump beyond smooth terms, by the actions with enough rows for these."""
    study, terms = space.study, space.study.terms
    told = np.zeros((len(study.left_out), study.n_actions, MOST_JUMPS_TOLD, len(JUMP_NUMBERS)))
    if terms is None:
        return JumpStatistics(strongest=told)
    n_rows = np.array([_rows_per_action(space, without) for without in study.left_out])
    sizes = [terms.sizes[family] for family in ("splines", "hinges") if family in terms.sizes]
    for action in range(study.n_actions):
        # How many smooth terms the rows can be regressed on; None if too few for any.
        smooth = [
            next((n for n in sizes if own >= 2 * (n + 1)), None)
            for own in n_rows[:, action].tolist()
        ]
        for n_smooth in sizes:
            versions = [version for version, own in enumerate(smooth) if own == n_smooth]
            if not versions:
                continue  # perhaps too few rows of this action; others may have enough
            asked = [study.left_out[version] for version in versions]
            found = _jumps(space, action, terms, n_smooth, asked)
            for version, lines in zip(versions, found, strict=True):
                order = np.lexsort((*lines.T[:-1], -np.abs(lines[:, -1])))
                told[version, action, : len(lines)] = lines[order]
    return JumpStatistics(strongest=told)


def _jumps(
    space: Workspace, action: int, terms: Terms, n_smooth: int, without: Sequence[int | None]
) -> list[FloatArray]:  # of each version, (n_told, len(JUMP_NUMBERS))
    """The strongest jumps, each where it is largest; enough rows are on every side.

    Of many rows, one in several is screened, and versions go without a fold of these.
    """
    every = -(-space.n_training // MOST_ROWS_SCREENED)
    parts = [_rows_of(chunk, action, every) for chunk in space.unscored_chunks()]
    contexts, rewards, weights, folds = (np.concatenate(own) for own in zip(*parts, strict=True))
    has_fold = np.ones((len(without), space.study.nuisances.folds))
    for own, fold in zip(has_fold, without, strict=True):
        if fold is not None:
            own[fold] = 0
    smooth = terms.of(contexts, n_smooth)
    residuals = SmoothResiduals.of(smooth, rewards, weights, folds, has_fold)
    places = JumpPlaces(residuals, contexts, terms, space.limits.minimum_cell)
    lines = []  # of each version, as many as are told
    for jumps in places.lines(LEAST_STATISTIC):
        order = np.argsort([-abs(line[-1]) for line in jumps], kind="stable")[:MOST_JUMPS_TOLD]
        lines.append([jumps[at] for at in np.sort(order)])
    return [np.array(own).reshape(-1, len(JUMP_NUMBERS)) for own in places.closer(lines)]


def _rows_of(chunk: Chunk, action: int, every: int) -> tuple[FloatArray, ...]:
    """Contexts, rewards, weights and folds of training rows of one action, or one in several."""
    own = chunk.training_rows(action)[::every]
    weights = chunk.weights(chunk.training)
    return (
        chunk.data.contexts[own],
        chunk.data.rewards[own],
        np.ones(len(own)) if weights is None else weights[own],
        chunk.folds.of_row[own].astype(np.int64),
    )


# --- where outcomes of one action jump ------------------------------------------------------------


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
        pairs = combinations(sorted(self._grids), 2)
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
        inside = [_combined(list(map(np.searchsorted, cuts, own))) for own in near]
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

    def _statistics(self, places: Sequence[int], cuts: Sequence[IntArray]) -> Jumps:
        """The statistics of the cuts of one number, or of two."""
        beside = self._beside.get(tuple(places))
        if beside is None:  # smooth terms of these numbers alone
            columns = [k for k, own in enumerate(self._sources) if set(own) <= set(places)]
            beside = self._beside[tuple(places)] = self._residuals.only(columns)
        bins = [self._grids[place].bins(own) for place, own in zip(places, cuts, strict=True)]
        least = max(self._minimum_cell, LEAST_BESIDE)
        return Jumps(beside, bins, [len(own) for own in cuts], least)


def _line(places: Sequence[int], cuts: Sequence[int], told: Sequence[float]) -> Line:
    """The places of numbers and cuts, then the statistics."""
    both = [number for pair in zip(places, cuts, strict=True) for number in map(float, pair)]
    return [*both, *[NOT_THERE] * (4 - len(both)), *told]


def strongest_by_part(
    statistics: Callable[[Sequence[IntArray]], Jumps],
    grids: Sequence[Mapping[int, IntArray]],
    least: float = 0.0,
) -> Iterable[tuple[int, list[int], float, float]]:
    """For each part of a grid, or of two: the place of the largest statistic, it, and the middle's.

    The version comes first. The middle alone decides whether there is a jump, because it was not
    chosen by its statistic. Parts whose middle is below `least` are skipped. `statistics` are those
    of the cuts that it is given; first of middles, then of parts that some version has a jump in.
    """
    parts = [list(grid.values()) for grid in grids]
    places = _combined([np.arange(len(own)) for own in parts])
    middles = statistics([np.array([cuts[len(cuts) // 2] for cuts in own]) for own in parts])
    middle = middles.at(*places)
    jumps = (middle != 0) & (np.abs(middle) >= least)
    wanted = np.flatnonzero(jumps.any(axis=0)).tolist()
    if not wanted:
        return
    used = [np.unique(along[wanted]).tolist() for along in places]
    cuts = [np.concatenate([own[k] for k in some]) for own, some in zip(parts, used, strict=True)]
    inside = [
        _combined([np.searchsorted(all_cuts, own[along[part]]) for all_cuts, own, along in each])
        for part in wanted
        for each in [list(zip(cuts, parts, places, strict=True))]
    ]
    found = statistics(cuts).at(*(np.concatenate(along) for along in zip(*inside, strict=True)))
    ends = np.cumsum([len(flat[0]) for flat in inside])[:-1]
    for part, flat, each in zip(wanted, inside, np.split(found, ends, axis=1), strict=True):
        for version in np.flatnonzero(jumps[:, part]).tolist():
            statistic = float(middle[version, part])
            best = int(np.argmax(np.sign(statistic) * each[version]))
            at = [int(own[along[best]]) for own, along in zip(cuts, flat, strict=True)]
            yield version, at, float(each[version, best]), statistic


def _combined(axes: Sequence[IntArray]) -> list[IntArray]:
    """Every combination of one number from each axis, by axis; the last varies fastest."""
    return [along.ravel() for along in np.meshgrid(*axes, indexing="ij")]
