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
from itertools import chain, product
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.scoring.fit_numbers import FittedRows, of_takers
from fedopl.client.scoring.values import joint_estimate
from fedopl.messages.evaluation.interactions_left import feature_products

_MOST_ROWS = 4_000  # evenly spread
_MOST_NUMBERS = 1 << 22  # of products that are held in memory
_MOST_TAKEN = 4  # products
# At how many quantiles steps are, in products of two and of three; the first that have room.
_N_CUTS = ((7, 5), (3, 3), (1, 1), (7, 0), (3, 0), (1, 0))
_LEAST_BESIDE = 10  # rows on either side of a step, and takers on either side of a product
_RIDGE = 1.0  # in rows
# A product must look stronger than any does by chance, but for one client in twenty.
_BY_CHANCE = 0.05


class SignStep(NamedTuple):
    """+1 where a feature lies beyond a value, −1 elsewhere."""

    place: int
    cut: float

    def of(self, contexts: FloatArray) -> FloatArray:  # (n_rows,)
        """The signs of these rows."""
        return np.where(contexts[:, self.place] > self.cut, 1.0, -1.0)


Product = tuple[SignStep, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class StepProducts:
    """Products of steps, and what each adds to the outcome of each action."""

    products: tuple[Product, ...]
    slopes: FloatArray  # (n_products, n_actions)
    centres: FloatArray  # (n_products, n_actions)  their means among those who took the action

    def of(self, contexts: FloatArray) -> FloatArray:  # (n_rows, n_actions)
        """What outcome models lack in these rows."""
        return np.asarray(
            _columns(contexts, self.products).T @ self.slopes
            - (self.centres * self.slopes).sum(axis=0)
        )


class FoundProducts(NamedTuple):
    """What was found in some rows, and what was found without each row's fold."""

    products: StepProducts
    out_of_fold: FloatArray  # (n_rows, n_actions)


def find_products(rows: FittedRows, allowed: BoolArray) -> FoundProducts | None:
    """What outcome models lack for the `allowed` actions, (n_actions,); None if hardly anything."""
    sample = rows.spread(_MOST_ROWS)
    products = _tried(sample.contexts)
    search = _Search(sample, products, allowed) if products else None
    if search is None or not search.stands_out():
        return None
    by_fold = {
        fold: search.nested(sample.folds != fold) for fold in np.unique(sample.folds).tolist()
    }
    n_taken = _how_many(search, sample, by_fold)
    if not n_taken:
        return None
    out_of_fold = np.zeros_like(rows.means)
    for fold, nested in by_fold.items():
        own = rows.folds == fold
        out_of_fold[own] = nested[n_taken - 1].of(rows.contexts[own])
    everybody = np.ones(len(sample.actions), np.bool_)
    return FoundProducts(search.nested(everybody)[n_taken - 1], out_of_fold)


def _tried(contexts: FloatArray) -> tuple[Product, ...]:
    """Products of two and of three steps, at as many quantiles as there is room for."""
    places = feature_products(contexts.shape[1])
    for n_cuts in _N_CUTS:
        steps = [_steps(contexts, most) for most in n_cuts]
        each = [[steps[len(own) - 2][place] for place in own] for own in places]
        n_products = sum(int(np.prod([len(one) for one in own])) for own in each)
        if n_products * len(contexts) <= _MOST_NUMBERS:
            return tuple(chain.from_iterable(product(*own) for own in each))
    return ()


def _steps(contexts: FloatArray, most: int) -> list[list[SignStep]]:
    """For each feature, steps at so many quantiles; fewer where they leave few rows on a side."""
    found = []
    for place, column in enumerate(contexts.T):
        shares = np.arange(1, most + 1) / (most + 1)
        cuts = np.unique(np.quantile(column, shares, method="lower")).tolist()
        beyond = [(cut, int(np.count_nonzero(column > cut))) for cut in cuts]
        enough = range(_LEAST_BESIDE, len(column) - _LEAST_BESIDE + 1)
        found.append([SignStep(place, cut) for cut, n_rows in beyond if n_rows in enough])
    return found


def _columns(
    contexts: FloatArray, products: tuple[Product, ...]
) -> FloatArray:  # (n_products, n_rows)
    signs = {step: step.of(contexts) for step in set(chain.from_iterable(products))}
    return np.stack([reduce(np.multiply, [signs[step] for step in own]) for own in products])


class _Search:
    """Products, and what outcome models leave of the rows that took each action."""

    def __init__(self, rows: FittedRows, products: tuple[Product, ...], allowed: BoolArray) -> None:
        self._products, self._columns = products, _columns(rows.contexts, products)
        each = [of_takers(rows, action) for action in range(len(allowed))]
        took = np.stack([inverse > 0 for inverse, _ in each], axis=1) & allowed
        # About 1 each, so that the ridge is in rows; 0 for those who took something else.
        self._weights = np.where(took, (rows.weights / rows.weights.mean())[:, None], 0.0)
        self._left = np.stack([residuals for _, residuals in each], axis=1)

    @property
    def counted(self) -> BoolArray:  # (n_rows,)
        """The rows that took an allowed action."""
        return np.asarray(self._weights.any(axis=1))

    def stands_out(self) -> bool:
        """Whether the strongest product is stronger than any would be by chance."""
        from scipy.special import chdtrc  # here, as it is slow to import

        if not self.counted.any():
            return False
        fit = _Fit(self._columns, self._weights, self._left)
        variance = (fit.weights * fit.rest**2).sum() / fit.weights.sum()
        n_actions = np.count_nonzero(fit.weights.any(axis=0))
        strongest = float(fit.gains.max()) / variance if variance > 0 else 0.0
        return bool(chdtrc(n_actions, strongest) < _BY_CHANCE / len(self._products))

    def nested(self, some: BoolArray) -> list[StepProducts]:
        """One product, two, and so on, found in some of the rows."""
        fit = _Fit(self._columns[:, some], self._weights[some], self._left[some])
        found = []
        for _ in range(_MOST_TAKEN):
            fit.take(int(np.argmax(fit.gains)))
            found.append(
                StepProducts(
                    products=tuple(self._products[k] for k in fit.taken),
                    slopes=fit.slopes,
                    centres=fit.means[fit.taken],
                )
            )
        return found

    def losses(self, by: FloatArray) -> FloatArray:  # (n_rows,)
        """Squared errors in what was taken, if models had this, (n_rows, n_actions), in them."""
        return np.asarray((np.where(self._weights > 0, self._left - by, 0.0) ** 2).sum(axis=1))


class _Fit:
    """Products that are taken one after the other, by how much of the rest each explains."""

    def __init__(self, columns: FloatArray, weights: FloatArray, left: FloatArray) -> None:
        self._columns, self.weights = columns, weights
        total = np.maximum(weights.sum(axis=0), 1e-300)
        self._left = left - (weights * left).sum(axis=0) / total
        self.rest = self._left
        self.means = columns @ weights / total  # (n_products, n_actions)
        self._spread = total * (1 - self.means**2)  # Σw(q − mean)², as q² is 1
        self._enough = total * (1 - np.abs(self.means)) / 2 >= _LEAST_BESIDE
        self.taken: list[int] = []
        self.slopes = np.zeros((0, weights.shape[1]))

    @property
    def gains(self) -> FloatArray:  # (n_products,)
        """How much of the rest each explains, of all actions together."""
        pulls = self._columns @ (self.weights * self.rest)
        spread = np.where(self._enough, self._spread, 1.0)
        gains = np.where(self._enough, pulls**2 / spread, 0.0).sum(axis=1)
        gains[self.taken] = -1.0
        return np.asarray(gains)

    def take(self, place: int) -> None:
        """Add a product, and fit all that were taken anew."""
        self.taken.append(place)
        slopes = np.zeros((len(self.taken), self.weights.shape[1]))
        self.rest = self._left.copy()
        for action, weights in enumerate(self.weights.T):
            # One that hardly varies among those who took the action says nothing of it.
            own = np.flatnonzero(self._enough[self.taken, action])
            places = [self.taken[k] for k in own]
            about = self._columns[places] - self.means[places, action, None]
            gram = (about * weights) @ about.T + _RIDGE * np.eye(len(own))
            slopes[own, action] = np.linalg.solve(gram, about @ (weights * self._left[:, action]))
            self.rest[:, action] -= slopes[own, action] @ about
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
