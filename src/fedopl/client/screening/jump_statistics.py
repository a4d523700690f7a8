"""Statistics of jumps: whether outcomes jump where one number, or two, pass certain values.

For each action, outcomes are regressed on smooth terms with this client's own rows. The residuals
are compared with two kinds of indicators. The first is whether rows lie beyond a threshold, less
what smooth terms of the same number explain of it. The second is whether rows lie beyond two
thresholds at once, less what smooth terms of both numbers and each threshold alone explain of it.
With v = residual · what is left of the indicator, t = Σv / √Σv². So the rows in which outcomes vary
most count no more than others, and |t| ≤ √m if only m rows support it. All thresholds of a grid
follow from sums over its cells, in one pass over the rows.

There may be several versions, each without a fold of the rows. Sums that depend on no regression
are formed once, by fold, and a version adds up those of its folds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.decompositions import symmetric_pinv

LEAST_BEYOND_SMOOTH = 1e-6  # the share of a jump's squares below which the rest is rounding


@dataclass(frozen=True, eq=False, kw_only=True)
class SmoothResiduals:
    """What smooth terms leave of the outcomes of one action's rows, by version."""

    smooth: FloatArray  # (n_rows, n_smooth), with a constant
    weights: FloatArray  # (n_rows,)
    folds: IntArray  # (n_rows,)
    has_fold: FloatArray  # (n_versions, n_folds), 1 or 0
    n_rows: FloatArray  # (n_versions,)
    pulls: FloatArray  # (n_versions, n_rows), weight · residual, 0 where a version lacks the row
    inverse: FloatArray  # (n_versions, n_smooth, n_smooth), of Σ weight · terms · terms
    squares: FloatArray  # (n_versions, n_smooth, n_smooth), Σ pull² · terms · terms
    grams: tuple[FloatArray, FloatArray]  # of terms: Σ weight · products, and means of squares

    @classmethod
    def of(
        cls,
        terms: FloatArray,
        rewards: FloatArray,
        weights: FloatArray,
        folds: IntArray,
        has_fold: FloatArray,
    ) -> "SmoothResiduals":
        """Regress outcomes on terms; residuals lose one degree of freedom per fitted number."""
        smooth = np.column_stack([np.ones(len(terms)), terms])
        width, n_folds = smooth.shape[1], has_fold.shape[1]
        sums, sizes = np.zeros((n_folds, width, width + 1)), np.zeros((n_folds, width))
        for fold in range(n_folds):
            own = np.flatnonzero(folds == fold)
            inside = smooth[own]
            columns = np.column_stack([inside, rewards[own]])
            sums[fold] = (inside * weights[own, None]).T @ columns
            sizes[fold] = np.square(inside).sum(axis=0)
        n_rows = has_fold @ np.bincount(folds, minlength=n_folds)
        by_version = np.tensordot(has_fold, sums, 1)
        grams = by_version[..., :-1], has_fold @ sizes / np.maximum(n_rows, 1)[:, None]
        fitted = _inverse(*grams, rcond=1e-10) @ by_version[..., -1:]
        pulls = (rewards - fitted[..., 0] @ smooth.T) * (weights * has_fold[:, folds])
        moved = [smooth * pull[:, None] for pull in pulls]
        return cls(
            smooth=smooth,
            weights=weights,
            folds=folds,
            has_fold=has_fold,
            n_rows=n_rows,
            pulls=pulls,
            inverse=_inverse(*grams),
            squares=np.array([own.T @ own for own in moved]),
            grams=grams,
        )

    def only(self, columns: Sequence[int]) -> "SmoothResiduals":
        """The same, with some of the smooth terms; the constant is the first."""
        both = np.ix_(range(len(self.pulls)), columns, columns)
        products, sizes = self.grams
        grams = products[both], sizes[:, columns]
        return replace(
            self,
            smooth=np.ascontiguousarray(self.smooth[:, columns]),
            inverse=_inverse(*grams),
            squares=self.squares[both],
            grams=grams,
        )


def _inverse(grams: FloatArray, sizes: FloatArray, rcond: float | None = None) -> FloatArray:
    """The inverse of each version's products of terms, which are scaled by their sizes for it."""
    scale = np.sqrt(np.maximum(sizes, np.finfo(float).tiny))
    both = scale[:, :, None] * scale[:, None, :]
    return np.asarray(symmetric_pinv(grams / both, rcond=rcond) / both)


class _Indicator(NamedTuple):
    """Sums of an indicator over the rows of each version."""

    residual: FloatArray  # (n_versions, n_places), weighted
    moved: FloatArray  # (n_versions, n_places), of squares, with squares of weighted residuals
    moved_terms: FloatArray  # (n_versions, n_places, n_smooth), with these and terms
    said: FloatArray  # (n_versions, n_places, n_smooth), what terms explain of it: coefficients


@dataclass(frozen=True, eq=False)
class _Part:
    """Sums over some rows of each version, and those with terms, the first of which is constant."""

    rows: FloatArray  # (n_versions, n_places)
    residual: FloatArray  # (n_versions, n_places), weighted
    terms: FloatArray  # (n_versions, n_places, n_smooth), with weights
    moved_terms: FloatArray  # (n_versions, n_places, n_smooth), with squares of weighted residuals
    said: FloatArray  # (n_versions, n_places, n_smooth), coefficients of terms for these rows

    @property
    def weight(self) -> FloatArray:
        return self.terms[..., 0]

    @property
    def moved(self) -> FloatArray:
        return self.moved_terms[..., 0]

    def common(self, other: "_Part", weight: FloatArray) -> FloatArray:
        """The product of two parts, less what smooth terms explain."""
        return weight - _sums_of_products(self.said, other.terms)


def _sums_of_products(one: FloatArray, two: FloatArray) -> FloatArray:  # (n_versions, n_places)
    return np.asarray(np.einsum("vpk,vpk->vp", one, two))


class Jumps:
    """The t-statistics of thresholds, which are counted from 0.

    They are of one number, or of two: whether both are passed, beyond each of them alone. They
    follow from sums of rows by cell, with what is needed to remove smooth terms.
    """

    def __init__(
        self,
        residuals: SmoothResiduals,
        bins: Sequence[IntArray],
        n_cuts: Sequence[int],
        least: int,
    ) -> None:
        from scipy.sparse import csc_array  # here, as it is slow to import

        n_bins = [n + 1 for n in n_cuts]
        own, n_cells = residuals, int(np.prod(n_bins))
        (n_versions, n_rows), n_folds = own.pulls.shape, own.has_fold.shape[1]
        self._width = width = own.smooth.shape[1]
        self._of, self._least = own, least
        cell = np.ravel_multi_index(tuple(bins), tuple(n_bins))
        begins = np.arange(n_rows + 1)
        found = np.empty((n_cells, n_versions, 2 + 2 * width))

        by_fold = cell + n_cells * own.folds
        grouped = csc_array((own.weights, by_fold, begins), shape=(n_folds * n_cells, n_rows))
        counts = np.bincount(by_fold, minlength=n_folds * n_cells).reshape(n_folds, n_cells)
        found[..., 0] = counts.T @ own.has_fold.T
        terms = own.has_fold @ (grouped @ own.smooth).reshape(n_folds, -1)
        found[..., 2 : 2 + width] = terms.reshape(n_versions, n_cells, width).swapaxes(0, 1)

        grouped = csc_array((own.weights, cell, begins), shape=(n_cells, n_rows))
        for version, pull in enumerate(own.pulls):
            found[:, version, 1] = np.bincount(cell, pull, n_cells)
            grouped.data = np.square(pull)
            found[:, version, 2 + width :] = grouped @ own.smooth

        beyond = found.reshape(*n_bins, n_versions, -1)
        for axis in range(len(n_bins)):
            along = np.moveaxis(beyond, axis, 0)
            for place in range(len(along) - 2, -1, -1):
                along[place] += along[place + 1]
        self._beyond = beyond  # sums over rows in this bin or beyond, on every axis

    def beyond(self, *places: IntArray | int) -> _Part:
        """The sums over rows beyond these cuts; 0 means beyond none."""
        found = self._beyond[places].swapaxes(0, 1)
        terms, moved_terms = found[..., 2 : 2 + self._width], found[..., 2 + self._width :]
        return _Part(found[..., 0], found[..., 1], terms, moved_terms, terms @ self._of.inverse)

    def statistic(
        self, v: _Indicator | _Part, left: FloatArray, enough: BoolArray
    ) -> FloatArray:  # (n_versions, n_places)
        """Σv / √Σv², where `left` are the squares that smooth terms leave of the indicator."""
        n_rows = self._of.n_rows[:, None]
        total = v.moved - 2 * _sums_of_products(v.said, v.moved_terms)
        total += _sums_of_products(v.said @ self._of.squares, v.said)
        known = enough & (total > 0) & (left > LEAST_BEYOND_SMOOTH * n_rows)
        found = np.where(known, v.residual / np.sqrt(np.where(known, total, 1.0)), 0.0)
        # Residuals are smaller than errors, because terms were fitted to them.
        free = np.maximum(n_rows - self._width, 0)
        return np.asarray(np.sqrt(free / np.maximum(n_rows, 1)) * found)

    def at(self, *cuts: IntArray) -> FloatArray:  # (n_versions, n_places)
        """The statistics of these cuts, or corners; 0 where any side has fewer than least rows."""
        return self._of_one(*cuts) if len(cuts) == 1 else self._of_two(*cuts)

    def _of_one(self, cuts: IntArray) -> FloatArray:
        own = self.beyond(cuts + 1)
        few = np.minimum(own.rows, self._of.n_rows[:, None] - own.rows)
        return self.statistic(own, own.common(own, own.weight), few >= self._least)

    def _of_two(self, first: IntArray, second: IntArray) -> FloatArray:
        both = self.beyond(first + 1, second + 1)
        one, two = self.beyond(first + 1, 0), self.beyond(0, second + 1)
        of_one, of_two = one.common(one, one.weight), two.common(two, two.weight)
        crossed = one.common(two, both.weight)
        on_one, on_two = one.common(both, both.weight), two.common(both, both.weight)
        apart = of_one * of_two - crossed**2
        told = apart > LEAST_BEYOND_SMOOTH * np.abs(of_one * of_two)
        safe = np.where(told, apart, 1.0)
        a = np.where(told, (of_two * on_one - crossed * on_two) / safe, 0.0)
        b = np.where(told, (of_one * on_two - crossed * on_one) / safe, 0.0)
        left = both.common(both, both.weight) - a * on_one - b * on_two
        # (Q − a·I − b·J)², where Q is in both I and J, and Q = I·J.
        moved = both.moved * (1 - 2 * a - 2 * b + 2 * a * b)
        moved = moved + np.square(a) * one.moved + np.square(b) * two.moved
        few = np.minimum.reduce(
            [
                both.rows,
                one.rows - both.rows,
                two.rows - both.rows,
                self._of.n_rows[:, None] - one.rows - two.rows + both.rows,
            ]
        )
        by_a, by_b = a[..., None], b[..., None]
        v = _Indicator(
            both.residual - a * one.residual - b * two.residual,
            moved,
            both.moved_terms - by_a * one.moved_terms - by_b * two.moved_terms,
            both.said - by_a * one.said - by_b * two.said,
        )
        return self.statistic(v, left, told & (few >= self._least))
