"""Statistics of jumps: whether outcomes jump where one number, or two, pass certain values.

For each action, outcomes are regressed on smooth terms with this client's own rows. The residuals
are compared with two kinds of indicators. The first is whether rows lie beyond a threshold, less
what smooth terms of the same number explain of it. The second is whether rows lie beyond two
thresholds at once, less what smooth terms of both numbers and each threshold alone explain of it.
With v = residual · what is left of the indicator, t = Σv / √Σv². So the rows in which outcomes vary
most count no more than others, and |t| ≤ √m if only m rows support it. All thresholds of a grid
follow from sums over its cells, in one pass over the rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.decompositions import symmetric_pinv

LEAST_BEYOND_SMOOTH = 1e-6  # the share of a jump's squares below which the rest is rounding


@dataclass(frozen=True, eq=False, kw_only=True)
class SmoothResiduals:
    """The residuals of smooth terms for the outcomes of one action's rows."""

    smooth: FloatArray  # (n_rows, n_smooth), with a constant
    left: FloatArray  # (n_rows,)
    weights: FloatArray  # (n_rows,)

    @classmethod
    def of(cls, terms: FloatArray, rewards: FloatArray, weights: FloatArray) -> "SmoothResiduals":
        """Regress outcomes on terms; residuals lose one degree of freedom per fitted number."""
        smooth = np.column_stack([np.ones(len(terms)), terms])
        scale = np.sqrt(np.maximum(np.square(smooth).mean(axis=0), np.finfo(float).tiny))
        smooth /= scale
        weighted = smooth * weights[:, None]
        fitted = symmetric_pinv(weighted.T @ smooth, rcond=1e-10)
        fitted = fitted @ (weighted.T @ rewards)
        return cls(smooth=smooth, left=rewards - smooth @ fitted, weights=weights)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.left)

    def only(self, columns: Sequence[int]) -> "SmoothResiduals":
        """The same, with some of the smooth terms; the constant is the first."""
        return SmoothResiduals(smooth=self.smooth[:, columns], left=self.left, weights=self.weights)

    @cached_property
    def lost(self) -> float:
        """How much smaller residuals are than errors, because terms were fitted to them."""
        return float(np.sqrt(max(self.n_rows - self.smooth.shape[1], 0) / max(self.n_rows, 1)))


class _Sums:
    """Sums of rows by cell of one or two grids, with what is needed to remove smooth terms."""

    def __init__(self, residuals: SmoothResiduals, bins: Sequence[IntArray], n_bins: Sequence[int]):
        smooth, weights = residuals.smooth, residuals.weights
        self._width = smooth.shape[1]
        moved = np.square(weights * residuals.left)
        weighted = smooth * weights[:, None]
        self.inverse = symmetric_pinv(weighted.T @ smooth)
        self.squares = (smooth * moved[:, None]).T @ smooth
        self.n_rows = residuals.n_rows
        columns = np.column_stack(
            [
                np.ones(self.n_rows),
                weights,
                weights * residuals.left,
                moved,
                weighted,
                smooth * moved[:, None],
            ]
        )
        cell = np.ravel_multi_index(tuple(bins), tuple(n_bins))
        n_cells = int(np.prod(n_bins))
        by_cell = np.stack([np.bincount(cell, own, n_cells) for own in columns.T], axis=-1)
        axes = tuple(range(len(n_bins)))
        beyond = np.flip(by_cell.reshape(*n_bins, -1), axes)
        for axis in axes:
            beyond = np.cumsum(beyond, axis=axis)
        self._beyond = np.flip(beyond, axes)  # sums over rows in this bin or beyond, on every axis

    def beyond(self, *places: IntArray | int) -> "_Part":
        """The sums over rows beyond these cuts; 0 means beyond none."""
        found = self._beyond[places]
        return _Part(found[..., :4], found[..., 4 : 4 + self._width], found[..., 4 + self._width :])

    def statistic(
        self, part: "_Part", moved: FloatArray, left: FloatArray, enough: BoolArray
    ) -> FloatArray:
        """Σv / √Σv², where `moved` is Σv² before smooth terms are removed."""
        smooth = part.terms @ self.inverse
        total = moved - 2 * (smooth * part.moved_terms).sum(axis=-1)
        total += ((smooth @ self.squares) * smooth).sum(axis=-1)
        known = enough & (total > 0) & (left > LEAST_BEYOND_SMOOTH * self.n_rows)
        return np.where(known, part.residual / np.sqrt(np.where(known, total, 1.0)), 0.0)

    def common(self, one: "_Part", two: "_Part", weight: FloatArray) -> FloatArray:
        """The product of two parts, less what smooth terms explain."""
        said: FloatArray = ((one.terms @ self.inverse) * two.terms).sum(axis=-1)
        return weight - said


@dataclass(frozen=True, eq=False)
class _Part:
    """Sums over some rows: counts, weights, residuals and their squares; and those with terms."""

    sums: FloatArray  # (..., 4)
    terms: FloatArray  # (..., n_smooth)
    moved_terms: FloatArray  # (..., n_smooth)

    @property
    def rows(self) -> FloatArray:
        return self.sums[..., 0]

    @property
    def weight(self) -> FloatArray:
        return self.sums[..., 1]

    @property
    def residual(self) -> FloatArray:
        return self.sums[..., 2]

    @property
    def moved(self) -> FloatArray:
        return self.sums[..., 3]

    def less(self, share: FloatArray, other: "_Part") -> "_Part":
        times = share[..., None]
        return _Part(
            self.sums - times * other.sums,
            self.terms - times * other.terms,
            self.moved_terms - times * other.moved_terms,
        )


class Jumps:
    """The t-statistics of one number's thresholds, which are counted from 0."""

    def __init__(self, residuals: SmoothResiduals, bins: IntArray, n_cuts: int, least: int) -> None:
        self._sums = _Sums(residuals, [bins], [n_cuts + 1])
        self._least, self._lost = least, residuals.lost

    def at(self, cuts: IntArray) -> FloatArray:  # shaped as cuts
        """The statistics of these cuts; 0 where one side has fewer rows than the least."""
        own = self._sums.beyond(cuts + 1)
        few = np.minimum(own.rows, self._sums.n_rows - own.rows)
        left = self._sums.common(own, own, own.weight)
        return self._lost * self._sums.statistic(own, own.moved, left, few >= self._least)


class Corners:
    """The t-statistics of two numbers' thresholds passed together, beyond each of them alone."""

    def __init__(
        self,
        residuals: SmoothResiduals,
        bins: Sequence[IntArray],
        n_cuts: Sequence[int],
        least: int,
    ) -> None:
        self._sums = _Sums(residuals, bins, [own + 1 for own in n_cuts])
        self._least, self._lost = least, residuals.lost

    def at(self, first: IntArray, second: IntArray) -> FloatArray:  # shaped as both
        """The statistics of these corners; 0 where any of the four has too few rows."""
        sums = self._sums
        both = sums.beyond(first + 1, second + 1)
        one, two = sums.beyond(first + 1, 0), sums.beyond(0, second + 1)
        of_one, of_two = (
            sums.common(one, one, one.weight),
            sums.common(two, two, two.weight),
        )
        crossed = sums.common(one, two, both.weight)
        on_one, on_two = (
            sums.common(one, both, both.weight),
            sums.common(two, both, both.weight),
        )
        apart = of_one * of_two - crossed**2
        told = apart > LEAST_BEYOND_SMOOTH * np.abs(of_one * of_two)
        safe = np.where(told, apart, 1.0)
        a = np.where(told, (of_two * on_one - crossed * on_two) / safe, 0.0)
        b = np.where(told, (of_one * on_two - crossed * on_one) / safe, 0.0)
        left = sums.common(both, both, both.weight) - a * on_one - b * on_two
        # (Q − a·I − b·J)², where Q is in both I and J, and Q = I·J.
        moved = both.moved * (1 - 2 * a - 2 * b + 2 * a * b)
        moved = moved + np.square(a) * one.moved + np.square(b) * two.moved
        few = np.minimum.reduce(
            [
                both.rows,
                one.rows - both.rows,
                two.rows - both.rows,
                sums.n_rows - one.rows - two.rows + both.rows,
            ]
        )
        part = both.less(a, one).less(b, two)
        return self._lost * sums.statistic(part, moved, left, told & (few >= self._least))


def strongest_by_part(
    statistics: Jumps | Corners, grids: Sequence[Mapping[int, IntArray]], least: float = 0.0
) -> Iterable[tuple[list[int], float, float]]:
    """For each part of a grid, or of two: the place of the largest statistic, it, and the middle's.

    The middle alone decides whether there is a jump, because it was not chosen by its statistic.
    Parts whose middle is below `least` are skipped.
    """
    parts = [list(grid.values()) for grid in grids]
    chosen = np.meshgrid(*[np.arange(len(own)) for own in parts], indexing="ij")
    places = np.stack([one.ravel() for one in chosen], axis=1)
    middles = [
        np.array([own[k][len(own[k]) // 2] for k in places[:, axis]])
        for axis, own in enumerate(parts)
    ]
    found = statistics.at(*middles)
    for place, statistic in zip(places, found.tolist(), strict=True):
        if statistic and abs(statistic) >= least:
            inside = np.meshgrid(
                *[own[k] for own, k in zip(parts, place, strict=True)], indexing="ij"
            )
            flat = [one.ravel() for one in inside]
            each = statistics.at(*flat)
            best = int(np.argmax(np.sign(statistic) * each))
            yield [int(one[best]) for one in flat], float(each[best]), statistic
