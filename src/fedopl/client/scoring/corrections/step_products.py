"""What two or three features do together beyond outcome models, found in a client's own rows.

A product of steps is a product of signs, each +1 where a feature lies beyond one of its quantiles
and −1 elsewhere. The product that explains most of what outcome models leave, out of fold, is taken
first, with a slope for each action; then the one that explains most of the rest (orthogonal
matching pursuit; Pati et al. 1993). How many are taken is decided by the squared error in folds
that had no say in choosing them: none, unless it is smaller by more than a standard error. A jump
of one feature that models miss is found, too, beside a step that most rows are beyond.
"""

from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.decompositions import solve
from fedopl.client.scoring.corrections.product_sums import LEAST_ROWS_BESIDE, Product, ProductSums
from fedopl.client.scoring.fit_numbers import FittedRows
from fedopl.client.scoring.values import joint_estimate

_MOST_ROWS = 4_000  # evenly spread
_MOST_TAKEN = 4  # products
_RIDGE = 1.0  # in rows
# A product must look stronger than any does by chance, but for one client in twenty.
_BY_CHANCE = 0.05


@dataclass(frozen=True, eq=False, kw_only=True)
class StepProducts:
    """Products of steps, and what each adds to the outcome of each action."""

    products: tuple[Product, ...]
    slopes: FloatArray  # (n_products, n_actions)
    centres: FloatArray  # (n_products, n_actions)  their means among those who took the action

    def of(self, contexts: FloatArray) -> FloatArray:  # (n_rows, n_actions)
        """What outcome models lack in these rows."""
        return np.asarray(
            _signs(contexts, self.products).T @ self.slopes
            - (self.centres * self.slopes).sum(axis=0)
        )


class FoundProducts(NamedTuple):
    """What was found in some rows, and what was found without each fold that is among them."""

    products: StepProducts
    by_fold: dict[int, StepProducts]
    out_of_fold: FloatArray  # (n_rows, n_actions)  of some rows

    def without(self, fold: int) -> StepProducts:
        """What was found without this fold."""
        return self.by_fold.get(fold, self.products)


def find_products(rows: FittedRows, allowed: BoolArray) -> FoundProducts | None:
    """What outcome models lack for the `allowed` actions, (n_actions,); None if hardly anything."""
    sample = rows.spread(_MOST_ROWS)
    search = _Search(sample, allowed)
    if not search.stands_out():
        return None
    by_fold = {
        fold: search.nested(sample.folds != fold) for fold in np.unique(sample.folds).tolist()
    }
    n_taken = _how_many(search, sample, by_fold)
    if not n_taken:
        return None
    out_of_fold = np.zeros_like(rows.means)
    without = {fold: nested[n_taken - 1] for fold, nested in by_fold.items()}
    for fold, products in without.items():
        own = rows.folds == fold
        out_of_fold[own] = products.of(rows.contexts[own])
    everybody = np.ones(len(sample.actions), np.bool_)
    return FoundProducts(search.nested(everybody)[n_taken - 1], without, out_of_fold)


def _signs(contexts: FloatArray, products: tuple[Product, ...]) -> FloatArray:
    """(n_products, n_rows), each +1 or −1."""
    return np.stack([reduce(np.multiply, [step.of(contexts) for step in own]) for own in products])


class _Search:
    """Products, and what outcome models leave of what rows took."""

    def __init__(self, rows: FittedRows, allowed: BoolArray) -> None:
        taken = np.arange(len(rows.actions)), rows.actions
        left = rows.rewards - rows.means[taken]
        counted = allowed[rows.actions] & (rows.propensities[taken] > 0) & np.isfinite(left)
        self._rows, self._left = rows, np.where(counted, left, 0.0)
        # About 1 each, so that the ridge is in rows; 0 for those that do not count.
        self._weights = np.where(counted, rows.weights / rows.weights.mean(), 0.0)
        self._sums = ProductSums(rows.contexts, rows.actions, len(allowed))

    @property
    def counted(self) -> BoolArray:  # (n_rows,)
        """The rows that took an allowed action."""
        return self._weights > 0

    def stands_out(self) -> bool:
        """Whether the strongest product is stronger than any would be by chance."""
        from scipy.special import chdtrc  # here, as it is slow to import

        if not (self.counted.any() and self._sums.exist.any()):
            return False
        fit = _Fit(self._sums, self._rows, self._weights, self._left)
        variance = self._weights @ fit.rest**2 / self._weights.sum()
        n_actions = np.count_nonzero(fit.totals)
        strongest = float(fit.gains.max()) / variance if variance > 0 else 0.0
        n_tried = np.count_nonzero(self._sums.exist)
        return bool(chdtrc(n_actions, strongest) < _BY_CHANCE / n_tried)

    def nested(self, some: BoolArray) -> list[StepProducts]:
        """One product, two, and so on, found in some of the rows."""
        fit = _Fit(self._sums, self._rows, np.where(some, self._weights, 0.0), self._left)
        found = []
        for _ in range(_MOST_TAKEN):
            fit.take(int(np.argmax(fit.gains)))
            found.append(
                StepProducts(
                    products=tuple(self._sums[k] for k in fit.taken),
                    slopes=fit.slopes,
                    centres=fit.means[fit.taken],
                )
            )
        return found

    def losses(self, by: FloatArray) -> FloatArray:  # (n_rows,)
        """Squared errors in what was taken, if models had this, (n_rows, n_actions), in them."""
        own = by[np.arange(len(by)), self._rows.actions]
        return np.where(self.counted, (self._left - own) ** 2, 0.0)


class _Fit:
    """Products that are taken one after the other, by how much of the rest each explains."""

    def __init__(
        self, sums: ProductSums, rows: FittedRows, weights: FloatArray, left: FloatArray
    ) -> None:
        n_actions = rows.means.shape[1]
        self._sums, self._rows, self._weights = sums, rows, weights
        self.totals = np.bincount(rows.actions, weights, n_actions)
        total = np.maximum(self.totals, 1e-300)
        centres = np.bincount(rows.actions, weights * left, n_actions) / total
        self._left = left - centres[rows.actions]
        self.rest = self._left  # (n_rows,)
        self.means = sums.of(weights) / total  # (n_products, n_actions)
        self._spread = total * (1 - self.means**2)  # Σw(q − mean)², as q² is 1
        beside = total * (1 - np.abs(self.means)) / 2  # takers on the smaller side
        self._enough = (beside >= LEAST_ROWS_BESIDE) & sums.exist[:, None]
        self._taken_signs = np.empty((0, len(left)))
        self.taken: list[int] = []
        self.slopes = np.zeros((0, n_actions))

    @property
    def gains(self) -> FloatArray:  # (n_products,)
        """How much of the rest each explains, of all actions together."""
        pulls = self._sums.of(self._weights * self.rest)
        spread = np.where(self._enough, self._spread, 1.0)
        gains = np.where(self._enough, pulls**2 / spread, 0.0).sum(axis=1)
        gains[self.taken] = -1.0
        return np.where(self._sums.exist, gains, -1.0)

    def take(self, place: int) -> None:
        """Add a product, and fit all that were taken anew."""
        self.taken.append(place)
        signs = _signs(self._rows.contexts, (self._sums[place],))
        self._taken_signs = np.concatenate([self._taken_signs, signs])
        slopes = np.zeros((len(self.taken), len(self.totals)))
        self.rest = self._left.copy()
        for action in range(len(self.totals)):
            takers = np.flatnonzero(self._rows.actions == action)
            # One that hardly varies among those who took the action says nothing of it.
            own = np.flatnonzero(self._enough[self.taken, action])
            means = self.means[[self.taken[k] for k in own], action]
            about = self._taken_signs[np.ix_(own, takers)] - means[:, None]
            weighted = about * self._weights[takers]
            gram = weighted @ about.T + _RIDGE * np.eye(len(own))
            slopes[own, action] = solve(gram, weighted @ self._left[takers])
            self.rest[takers] -= slopes[own, action] @ about
        self.slopes = slopes


def _how_many(search: _Search, rows: FittedRows, by_fold: dict[int, list[StepProducts]]) -> int:
    """How many products predict other folds best; none unless by more than a standard error."""
    counted = search.counted
    without = search.losses(np.zeros_like(rows.means))
    better = np.empty((_MOST_TAKEN, len(without)))
    for n_taken in range(_MOST_TAKEN):
        predicted = np.zeros_like(rows.means)
        for fold, nested in by_fold.items():
            own = rows.folds == fold
            predicted[own] = nested[n_taken].of(rows.contexts[own])
        better[n_taken] = without - search.losses(predicted)
    best = int(np.argmax(better[:, counted] @ rows.weights[counted]))
    groups: IntArray | None = None if rows.groups is None else rows.groups[counted]
    found = joint_estimate(better[best, counted, None], rows.weights[counted], groups)
    if found is None or found.degrees_of_freedom < 1:
        return 0
    _, _, mean, variance = found.first_column
    return best + 1 if mean > np.sqrt(variance) else 0
