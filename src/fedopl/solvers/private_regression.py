"""Linear models from sums with noise of a known size, and steps that improve them.

Noisy tables of sums are adjusted so that they agree where they add up the same rows.

All quantities are in units of the study, in which features, outcomes and residuals are about one in
size. The noise of sums is symmetric. A diagonal entry of the squares has their standard deviation,
an entry off the diagonal has that over √2, and an entry of the products has theirs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.decompositions import cholesky, eigh, solve
from fedopl.policies.trees.grid import Grid

# Candidate variances of coefficients; the likelihood chooses among them.
_PRIORS = np.geomspace(1e-3, 10, 13)
# A smaller difference in log-likelihood is no reason for a richer family.
_CLEARLY = 2.0
_RESIDUAL_VARIANCE = 1.0
_LEAST_VARIANCE = 0.02  # of the mean one, for any direction of features
# Multiple of the noise in squares that is added to them when a step is solved for.
_STEP_RIDGE = 0.3
_ROUNDS = 3  # of noise that depends on coefficients and coefficients that depend on it


class FirstNoise(NamedTuple):
    """Standard deviations of the noise that was added to the first sums."""

    squares: float
    products: float

    def times(self, factor: float) -> "FirstNoise":
        """The noise times a factor: √C if each of C clients added noise, and sums are added up."""
        return FirstNoise(*(factor * own for own in self))


@dataclass(frozen=True, eq=False, kw_only=True)
class FirstFit:
    """What is estimated from the first sums."""

    parameters: FloatArray  # (n_actions, n_columns)
    n_terms: int  # how many of the terms they use, the first ones
    square: FloatArray  # (n_columns, n_columns), of all rows, whatever was done
    rows: FloatArray  # (n_actions,), that took each action, about


def first_fit(
    squares: FloatArray, products: FloatArray, noise: FirstNoise, families: Sequence[int]
) -> FirstFit:
    """Models of each action's outcome, from noisy sums of squares and products by action.

    `families` lists how many of the first terms a model may use; the simplest family is first.
    """
    n_columns, deviation = products.shape[1], noise.squares
    rows = np.maximum(squares[:, -1, -1], 1.0)
    means = _shrunk_means(squares[:, :-1, -1] / rows[:, None], rows, deviation)
    spread = _shrunk_spread(squares, means, rows, deviation)
    shared = np.stack([_square_of(spread, mean) for mean in means]) * rows[:, None, None]
    # An action's own squares count as far as they differ from the shared ones beyond noise.
    n_free = n_columns + n_columns * (n_columns - 1) / 2
    apart = ((squares - shared) ** 2).sum(axis=(1, 2))
    own = _kept(apart, deviation**2 * n_free)[:, None, None]
    blended = own * squares + (1 - own) * shared
    parameters, n_terms = _fitted(blended, products, noise, families)
    return FirstFit(parameters=parameters, n_terms=n_terms, square=shared.sum(axis=0), rows=rows)


def _kept(size: FloatArray | float, noise: FloatArray | float) -> FloatArray:
    """The share of a quantity that is kept if `noise` of its square is noise."""
    return np.maximum(0.0, 1 - noise / np.maximum(size, 1e-300))


def _shrunk_means(means: FloatArray, rows: FloatArray, deviation: float) -> FloatArray:
    """Mean features by action, shrunk toward the overall mean as far as noise requires."""
    everybody = rows @ means / rows.sum()
    apart = means - everybody
    noise = means.shape[1] * (deviation**2 / 2) / rows**2
    kept = _kept((apart**2).sum(axis=1), noise)
    return np.asarray(everybody + kept[:, None] * apart)


def _shrunk_spread(
    squares: FloatArray, means: FloatArray, rows: FloatArray, deviation: float
) -> FloatArray:  # (n_features, n_features)
    """The covariance of features within actions, shrunk to a round one as far as noise requires."""
    n_actions, n_features = means.shape
    within = squares[:, :-1, :-1] - rows[:, None, None] * means[:, :, None] * means[:, None, :]
    found = within.sum(axis=0) / rows.sum()
    round_one = max(float(np.trace(found)) / n_features, 0.05)
    apart = found - round_one * np.eye(n_features)
    n_free = n_features + n_features * (n_features - 1) / 2
    kept = _kept((apart**2).sum(), n_actions * deviation**2 * n_free / rows.sum() ** 2)
    values, vectors = eigh(round_one * np.eye(n_features) + kept * apart)
    values = np.maximum(values, _LEAST_VARIANCE * round_one)
    return np.asarray((vectors * values) @ vectors.T)


def _square_of(spread: FloatArray, mean: FloatArray) -> FloatArray:  # (n_columns, n_columns)
    """The mean square of features with this covariance and mean, and an intercept."""
    wide = np.append(mean, 1.0)
    square = np.outer(wide, wide)
    square[:-1, :-1] += spread
    return square


def _fitted(
    squares: FloatArray, products: FloatArray, noise: FirstNoise, families: Sequence[int]
) -> tuple[FloatArray, int]:  # (n_actions, n_columns)
    """Ridge regression that accounts for the noise, and the number of first terms it uses.

    If coefficients have variances D, products Gθ have the covariance GDG plus noise: from sampling,
    σ²G, and from what was added to products and squares, s_b² + s_G²|θ|²/2. The terms that each
    family adds have a variance of their own, chosen by likelihood. The simplest family is chosen
    whose likelihood is not clearly below the best.
    """
    size, vectors = eigh(squares)
    # Without their negative directions, which only noise can have made.
    squares = (vectors * np.maximum(size, 0.0)[:, None, :]) @ vectors.swapaxes(1, 2)
    parameters = np.zeros_like(products)
    variances = np.array([1.0, *np.zeros(len(families) - 1)])
    for _ in range(_ROUNDS):
        added = noise.products**2 + noise.squares**2 * (parameters**2).sum(axis=1) / 2
        evidence = _Evidence(squares, products, added, families)
        variances, n_families = evidence.chosen(variances)
        parameters = evidence.parameters(variances)
    return parameters, families[n_families - 1]


@dataclass(frozen=True, eq=False)
class _Evidence:
    """The likelihood of the products of all actions, given variances of coefficients by family."""

    squares: FloatArray  # (n_actions, n_columns, n_columns)
    products: FloatArray  # (n_actions, n_columns)
    added: FloatArray  # (n_actions,), variances of the noise that was added
    families: Sequence[int]

    def chosen(self, variances: FloatArray) -> tuple[FloatArray, int]:
        """Variances by family, zero for unused families, and the number of families used."""
        found, best = [], -math.inf
        for n_used in range(1, len(self.families) + 1):
            own = np.where(np.arange(len(variances)) < n_used, np.maximum(variances, 1e-2), 0.0)
            likelihood, own = self._climbed(own, n_used)
            found.append((likelihood, own))
            best = max(best, likelihood)
        n_used = next(n for n, (one, _) in enumerate(found, 1) if one >= best - _CLEARLY)
        return found[n_used - 1][1], n_used

    def _climbed(self, variances: FloatArray, n_used: int) -> tuple[float, FloatArray]:
        """The best variances of the first families, found one family at a time, in two passes."""
        best = -math.inf
        for _ in range(1 if n_used == 1 else 2):
            for family in range(n_used):
                own = np.arange(len(variances)) == family
                each = [np.where(own, variance, variances) for variance in _PRIORS]
                tried = [(self._likelihood(one), one) for one in each]
                best, variances = max(tried, key=lambda one: one[0])
        return best, variances

    def _likelihood(self, variances: FloatArray) -> float:
        by_column = self._by_column(variances)
        covariances = self._covariances(by_column)
        factors = cholesky(covariances)
        turned = solve(factors, self.products[..., None])[..., 0]
        logs = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum()
        return -float(logs + (turned**2).sum() / 2)

    def parameters(self, variances: FloatArray) -> FloatArray:  # (n_actions, n_columns)
        """The most likely coefficients."""
        by_column = self._by_column(variances)
        pulled = solve(self._covariances(by_column), self.products[..., None])
        return np.asarray(by_column * (self.squares @ pulled)[..., 0])

    def _covariances(self, by_column: FloatArray) -> FloatArray:
        noise = np.maximum(self.added, 1e-9)[:, None, None] * np.eye(len(by_column))
        explained = (self.squares * by_column) @ self.squares
        return np.asarray(explained + _RESIDUAL_VARIANCE * self.squares + noise)

    def _by_column(self, variances: FloatArray) -> FloatArray:  # (n_columns,)
        """Variances by column: a family's for the terms it adds, the first's for the intercept."""
        added = np.diff([0, *self.families])
        return np.append(np.repeat(variances, added), variances[0])


def stepped(
    parameters: FloatArray, residuals: FloatArray, fit: FirstFit, *, passed: float, noise: float
) -> FloatArray:  # shaped as parameters
    """Parameters after a step along residual sums, of which clipping left a share `passed`."""
    used = [*range(fit.n_terms), -1]
    ridge = _STEP_RIDGE * noise * np.sqrt(2 * len(used)) * np.eye(len(used))
    moved = parameters.copy()
    square = passed * fit.square[np.ix_(used, used)] + ridge
    moved[:, used] += solve(square, residuals[:, used].T).T
    return moved


# --- tables of sums ------------------------------------------------------------------------------


def agreeing_cells(
    cells: FloatArray, grid: Grid, released: Sequence[tuple[int, int]]
) -> FloatArray:  # (n_cells, n_numbers), of the whole grid
    """The cells of a whole grid by least squares, from noisy cells (n_released, n_numbers).

    Without noise every table of two columns has the same total, and each column's bins have the
    same sums in all tables that contain the column. The closest tables that do agree contain less
    noise: with p columns, an effect is a mean over p − 1 tables, and the total one over all tables.

    A table consists of its total, spread evenly, the effects of its two columns, and an interaction
    that no other table shares. For tables that were not released, the interaction is taken as zero.
    """
    sizes = [grid.tables[table].stop - grid.tables[table].start for table in released]
    apart = np.split(cells, np.cumsum(sizes)[:-1])
    tables = {
        (first, second): own.reshape(grid.n_bins[first], -1, cells.shape[1])
        for (first, second), own in zip(released, apart, strict=True)
    }
    fitted = _Effects(tables, grid)
    found = np.empty((grid.n_cells, cells.shape[1]))
    for columns, place in grid.tables.items():
        shaped = fitted.table(columns) + fitted.left(columns)
        found[place] = shaped.reshape(-1, cells.shape[1])
    return found


class _Effects:
    """What tables share: a total, and an effect of each column's bins."""

    def __init__(self, tables: dict[tuple[int, int], FloatArray], grid: Grid) -> None:
        self._tables, self._grid = tables, grid
        # A sum over more cells has more noise, so it counts for less.
        weights = [1 / (own.shape[0] * own.shape[1]) for own in tables.values()]
        totals = [own.sum(axis=(0, 1)) for own in tables.values()]
        self._total = np.average(totals, axis=0, weights=weights)  # (n_numbers,)
        self._effects = [self._effect(column) for column in range(grid.n_columns)]

    def _effect(self, column: int) -> FloatArray:  # (n_bins, n_numbers), zero in sum
        found, weights = [], []
        for columns, own in self._tables.items():
            if column in columns:
                other = 1 if column == columns[0] else 0
                sums = own.sum(axis=other)
                found.append(sums - sums.mean(axis=0))
                weights.append(1 / own.shape[other])
        if not found:
            return np.zeros((self._grid.n_bins[column], len(self._total)))
        return np.average(found, axis=0, weights=weights)

    def table(self, columns: tuple[int, int]) -> FloatArray:  # (n_bins, n_bins or 1, n_numbers)
        """The table that the total and the effects imply; a single line for one column."""
        first, second = columns
        n_first = self._grid.n_bins[first]
        if first == second:
            return (self._effects[first] + self._total / n_first)[:, None]
        n_second = self._grid.n_bins[second]
        beside = self._effects[second][None] / n_first
        found: FloatArray = self._effects[first][:, None] / n_second + beside
        return found + self._total / (n_first * n_second)

    def left(self, columns: tuple[int, int]) -> FloatArray | float:
        """The interaction of a released table: what its own total and effects do not explain."""
        own = self._tables.get(columns)
        if own is None:
            return 0.0
        across = own.mean(axis=1, keepdims=True)
        return np.asarray(own - across - own.mean(axis=0) + own.mean(axis=(0, 1)))
