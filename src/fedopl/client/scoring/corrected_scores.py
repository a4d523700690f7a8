"""Scores of valued rows, corrected by what two or three features do beyond outcome models.

A product of steps is a product of signs, each +1 where a feature lies beyond one of its quantiles
and −1 elsewhere. The product that explains most of what outcome models leave, out of fold, is taken
first, with a slope for each action; then the one that explains most of the rest (orthogonal
matching pursuit; Pati et al. 1993). How many are taken is decided by the squared error in folds
that had no say in choosing them: none, unless it is smaller by more than a standard error. A jump
of one feature that models miss is found, too, beside a step that most rows are beyond.

Where features are cut into bins, such a product is +1 or −1 throughout a cell of two or three
features' bins. So one table of cells, summed up along its axes, gives the sums of all products of
these features, at all their cuts. It takes one visit to a row, however many cuts there are.

With h(x; a) what products of steps add to an outcome model, found in training rows alone, or in the
other folds if each is valued, the score of a row changes by h(x; a)·(1 − 1{A = a}/ê). Where
propensities are right, that is chance; where they are not, it is about what values are wrong by, as
far as h is found. How much is still missed nobody knows, so values are taken to be more unsure by
what this moves them.
"""

from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.decompositions import solve
from fedopl.client.rows.chunks import Chunk
from fedopl.client.scoring.cross_fit import Nuisances
from fedopl.client.scoring.fit_numbers import FittedRows
from fedopl.client.scoring.values import joint_estimate
from fedopl.messages.evaluation.interactions_left import feature_products
from fedopl.messages.message import RowSplit

_MOST_NUMBERS = 1 << 22  # of rows' cells, and of tables, that are held in memory
# At how many quantiles steps are, in products of two and of three; the first that have room.
_N_CUTS = ((7, 5), (3, 3), (1, 1), (7, 0), (3, 0), (1, 0))
LEAST_ROWS_BESIDE = 10  # rows on either side of a step


class SignStep(NamedTuple):
    """+1 where a feature lies beyond a value, −1 elsewhere."""

    place: int
    cut: float

    def of(self, contexts: FloatArray) -> FloatArray:  # (n_rows,)
        """The signs of these rows."""
        return np.where(contexts[:, self.place] > self.cut, 1.0, -1.0)


Product = tuple[SignStep, ...]


class ProductSums:
    """The products that are tried on some rows, and their sums by the action that rows took."""

    def __init__(self, contexts: FloatArray, actions: IntArray, n_actions: int) -> None:
        n_rows, n_features = contexts.shape
        places = feature_products(n_features)
        of_two, of_three = (np.array([own for own in places if len(own) == k]) for k in (2, 3))
        self._tables = list[_CellTables]()
        for for_two, for_three in _N_CUTS:
            asked = [(of_two, for_two), (of_three, for_three)]
            own = [(them, n_cuts) for them, n_cuts in asked if len(them) and n_cuts]
            needed = [
                len(them) * max(n_rows, (n_cuts + 1) ** them.shape[1] * n_actions)
                for them, n_cuts in own
            ]
            if sum(needed) <= _MOST_NUMBERS:
                self._tables = [
                    _CellTables(contexts, them, n_cuts, actions, n_actions) for them, n_cuts in own
                ]
                break
        self.exist = np.concatenate([np.zeros(0, np.bool_), *(own.exist for own in self._tables)])

    def of(self, values: FloatArray) -> FloatArray:  # (n_products, n_actions)
        """Sums of the products times these values, (n_rows,)."""
        return np.concatenate([own.sums(values) for own in self._tables])

    def __getitem__(self, index: int) -> Product:
        for own in self._tables:
            if index < len(own.exist):
                return own.product(index)
            index -= len(own.exist)
        raise IndexError(index)


class _CellTables:
    """Products of as many steps as `places`, (n_combinations, n_steps), has columns."""

    def __init__(
        self, contexts: FloatArray, places: IntArray, n_cuts: int, actions: IntArray, n_actions: int
    ) -> None:
        n_combinations, n_steps = places.shape
        self._places, self._n_actions = places, n_actions
        self._cuts = np.array([_cuts(column, n_cuts) for column in contexts.T])
        bins = np.stack(
            [np.searchsorted(own, x) for own, x in zip(self._cuts, contexts.T, strict=True)]
        )  # how many cuts a value lies beyond
        self._shape = (n_combinations, *([n_cuts + 1] * n_steps), n_actions)
        # A cell's number in a table with one axis for each step, and a last one for actions.
        cells = np.arange(n_combinations)[:, None] * int(np.prod(self._shape[1:])) + actions
        for axis, own in enumerate(places.T, 2):
            strided = bins * int(np.prod(self._shape[axis:]))
            for place, into in zip(own.tolist(), cells, strict=True):
                into += strided[place]
        self._cells = cells.ravel()
        finite = np.isfinite(self._cuts)[places]  # (n_combinations, n_steps, n_cuts)
        self.exist: BoolArray = np.asarray(_outer(finite)).reshape(-1)

    def sums(self, values: FloatArray) -> FloatArray:  # (n_products, n_actions)
        """Sums of the products times these values, by action."""
        every = np.tile(values, self._shape[0])
        table = np.bincount(self._cells, every, int(np.prod(self._shape))).reshape(self._shape)
        for axis in range(1, table.ndim - 1):
            # No matrix product: its last digits, and with them ties, would follow the processor.
            below = np.moveaxis(table.cumsum(axis=axis), axis, 0)
            table = np.moveaxis(below[-1] - 2 * below[:-1], 0, axis)
        return table.reshape(-1, self._n_actions)

    def product(self, index: int) -> Product:
        """The product with this number."""
        n_cuts, n_steps = self._cuts.shape[1], self._places.shape[1]
        which, *cuts = np.unravel_index(index, (len(self._places), *([n_cuts] * n_steps)))
        own = self._places[which].tolist()
        return tuple(
            SignStep(place, float(self._cuts[place, cut]))
            for place, cut in zip(own, cuts, strict=True)
        )


def _outer(finite: BoolArray) -> BoolArray:  # (n_combinations, n_cuts, …)
    """Of which cuts, one for each step, all exist."""
    found = finite[:, 0]
    for own in np.moveaxis(finite, 1, 0)[1:]:
        found = found[..., None] & own.reshape(len(own), *([1] * (found.ndim - 1)), -1)
    return found


def _cuts(column: FloatArray, most: int) -> list[float]:
    """Ascending quantiles; infinite where fewer leave enough rows on both sides."""
    shares = np.arange(1, most + 1) / (most + 1)
    cuts = np.unique(np.quantile(column, shares, method="lower")).tolist()
    beyond = [(cut, int(np.count_nonzero(column > cut))) for cut in cuts]
    enough = range(LEAST_ROWS_BESIDE, len(column) - LEAST_ROWS_BESIDE + 1)
    kept = [cut for cut, n_rows in beyond if n_rows in enough]
    return [*kept, *[np.inf] * (most - len(kept))]


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
        self.counted = self._weights > 0  # (n_rows,)  the rows that took an allowed action
        self._sums = ProductSums(rows.contexts, rows.actions, len(allowed))

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


# Times the square of what a value moves by. One would do if clients' errors averaged out; they go
# the same way. With three clients, this is as if what is still missed were as much again.
_BY_SQUARES = 3.0


def changes_by(
    found: FoundProducts, chunk: Chunk, nuisances: Nuisances, clip: float | None
) -> FloatArray:  # (n_rows, n_actions)
    """What scores of the rows change by: of training rows fold by fold, then of held-out ones."""
    contexts = chunk.data.contexts
    own = [
        found.by_fold.get(fold, found.products).of(contexts[at])
        for fold, at in enumerate(chunk.fold_slices)
    ]
    held_out = found.products.of(contexts[chunk.rows(RowSplit.EVALUATION)])
    changes = np.concatenate([*own, held_out])
    places = np.arange(len(changes)), chunk.data.actions
    chances = np.maximum(nuisances.propensities[places], clip or 0.0)
    known = chances > 0  # a row whose propensity is not known has no score
    changes[places] *= 1 - np.divide(1.0, chances, out=np.ones_like(chances), where=known)
    return changes


def variance_of_changes(changes: FloatArray, weights: FloatArray | None) -> float:
    """What to add to the variance of a mean of scores that change by this, (n_rows,)."""
    return _BY_SQUARES * float(np.average(changes, weights=weights)) ** 2


def added_by_changes(
    changes: FloatArray, decided: IntArray, weights: FloatArray | None
) -> FloatArray:  # (n_policies, n_policies)
    """What to add to the covariances of policies' values, by their decisions (n_rows, n_policies).

    All values move together, so this is of rank one.
    """
    own = changes[np.arange(len(decided))[:, None], decided]
    moved = np.average(own, axis=0, weights=weights)
    return _BY_SQUARES * np.outer(moved, moved)


def may_be_corrected(chunk: Chunk, without: BoolArray) -> BoolArray:  # (n_actions,)
    """The actions that enough training rows took, of those with scores by more than a model."""
    taken = np.bincount(chunk.data.actions[chunk.training], minlength=len(without))
    return np.asarray((taken > 0) & ~without)
