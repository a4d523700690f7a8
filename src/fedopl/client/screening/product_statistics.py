"""Statistics of products of two features: whether one predicts outcomes beyond the features.

For each action, outcomes are regressed on the features with this client's own rows. A product could
merely stand in for a bend of either of its two features. So the part of it that neither they nor
their squares explain is tested. With v = residual · that part of the product, t = Σv / √Σv². This
is robust: the rows in which outcomes vary most count no more than others, and |t| ≤ √m if only m
rows support it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.decompositions import symmetric_pinv
from fedopl.client.rows.chunks import Chunk

_NUMBERS_AT_ONCE = 1 << 15  # of features: products of one with all others stay in a core's cache
LEAST_LEFT = 1e-9  # the share of a product's squares below which the rest is rounding


@dataclass(frozen=True, eq=False, kw_only=True)
class ProductTests:
    """The tests of products in one client's rows, by action."""

    statistics: FloatArray  # (n_actions, n_pairs), 0 where nothing varies
    n_rows: IntArray  # (n_actions,)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Part:
    """Some rows that took one action, with features scaled as products use them."""

    scaled: FloatArray  # (n_features, n_rows)
    rewards: FloatArray  # (n_rows,)
    weights: FloatArray  # (n_rows,)


def product_tests(
    chunks: Callable[[], Iterable[Chunk]],
    scaling: Callable[[FloatArray], FloatArray],
    n_actions: int,
    n_features: int,
    every: int = 1,
    without: int | None = None,
) -> ProductTests:
    """The tests, from two passes per action over the training rows, or over one in `every`.

    A fold may be left out.
    """
    first, second = np.triu_indices(n_features, 1)
    found = np.zeros((n_actions, len(first)))
    n_rows = np.zeros(n_actions, np.int64)
    at_once = max(1, _NUMBERS_AT_ONCE // max(n_features, 1))
    for action in range(n_actions):

        def parts(action: int = action) -> Iterator[_Part]:
            """Rows that took the action: every n-th, in blocks of limited size."""
            for chunk in chunks():
                own = chunk.training_rows(action, without)[::every]
                weights = chunk.weights(chunk.training)
                for start in range(0, len(own), at_once):
                    rows = own[start : start + at_once]
                    yield _Part(
                        scaled=np.ascontiguousarray(scaling(chunk.data.contexts[rows]).T),
                        rewards=chunk.data.rewards[rows],
                        weights=np.ones(len(rows)) if weights is None else weights[rows],
                    )

        fit = _fitted(parts(), n_features, first, second)
        if fit is not None:
            found[action] = _tested(parts(), fit)
            n_rows[action] = fit.n_rows
    return ProductTests(statistics=found, n_rows=n_rows)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Fit:
    """Regressions of outcomes, squares and products on features, and of products on squares."""

    first: IntArray  # (n_pairs,), the place of a pair's first feature
    second: IntArray  # (n_pairs,)
    n_rows: int
    outcomes: FloatArray  # (n_features + 1,)
    squares: FloatArray  # (n_features + 1, n_features)
    products: FloatArray  # (n_features + 1, n_pairs)
    by_squares: FloatArray  # (2, n_pairs), on the residual squares of its two features
    varies: BoolArray  # (n_pairs,), whether anything is left of a product

    def left_of(self, part: _Part) -> Iterator[tuple[slice, FloatArray]]:
        """What is left of products, (n_own, n_rows), of one feature with all later ones at once."""
        features = _with_constant(part.scaled)
        squares = np.square(part.scaled) - self.squares.T @ features
        # The square of a pair's first feature is one for all its pairs, so it goes with features.
        beside = np.vstack([features, features[:1]])
        for place, own in enumerate(_pairs_of(len(part.scaled))):
            beside[-1] = squares[place]
            left = self.explained[own] @ beside
            np.subtract(_products(part.scaled, place), left, out=left)
            left -= self.by_squares[1, own, None] * squares[place + 1 :]
            yield own, left

    @cached_property
    def explained(self) -> FloatArray:  # (n_pairs, n_features + 2)
        """Of each product, the slopes on features and on the square of its first one."""
        return np.ascontiguousarray(np.vstack([self.products, self.by_squares[:1]]).T)


def _fitted(
    parts: Iterator[_Part], n_features: int, first: IntArray, second: IntArray
) -> _Fit | None:
    """The regressions, solved from sums; None if no row took the action."""
    n_rows, total, plain = 0, 0.0, n_features + 1  # features and the constant
    grams, cubes = np.zeros((2 * plain, 2 * plain)), np.zeros((n_features, n_features))
    beside = np.zeros((plain, len(first)))
    for part in parts:
        features, squares = _with_constant(part.scaled), np.square(part.scaled)
        columns = np.vstack([features, squares, part.rewards])
        grams += (columns * part.weights) @ columns.T
        cubes += (squares * part.scaled * part.weights) @ part.scaled.T
        weighted = features * part.weights
        for place, own in enumerate(_pairs_of(len(squares))):
            beside[:, own] += weighted @ _products(part.scaled, place).T
        n_rows, total = n_rows + len(part.rewards), total + float(part.weights.sum())
    if not n_rows or total <= 0:
        return None
    # Flags of one column add up to the constant, so the sums may have no inverse.
    scale = np.sqrt(np.maximum(np.diagonal(grams)[:plain], np.finfo(float).tiny))
    inverse = symmetric_pinv(grams[:plain, :plain] / np.outer(scale, scale))
    inverse /= np.outer(scale, scale)
    on_squares = inverse @ grams[:plain, plain:-1]
    on_products = inverse @ beside
    squares = grams[plain:-1, plain:-1] - grams[plain:-1, :plain] @ on_squares
    sizes = grams[plain:-1, plain:-1][first, second]
    # Of products with the squares of their own two features: Σw·a²·ab and Σw·b²·ab, and what of
    # these features do not explain.
    both = np.stack([cubes[first, second], cubes[second, first]])
    for own, which in zip(both, (first, second), strict=True):
        own -= np.einsum("kp,kp->p", grams[:plain, plain:-1][:, which], on_products)
    # A flag's square is the flag itself, so nothing is left of it.
    bends = np.diagonal(squares) > LEAST_LEFT * np.diagonal(grams)[plain:-1]
    by_squares, explained = _by_two(squares * np.outer(bends, bends), both, first, second)
    left = sizes - (beside * on_products).sum(axis=0) - explained
    return _Fit(
        first=first,
        second=second,
        n_rows=n_rows,
        outcomes=inverse @ grams[:plain, -1],
        squares=on_squares,
        products=on_products,
        by_squares=by_squares,
        varies=left > LEAST_LEFT * sizes,
    )


def _by_two(
    squares: FloatArray, both: FloatArray, first: IntArray, second: IntArray
) -> tuple[FloatArray, FloatArray]:  # (2, n_pairs), (n_pairs,)
    """Coefficients of each product on the squares of its two features, and what they explain.

    `squares` are sums of residual squares times each other, and `both`, (2, n_pairs), of each
    product times those of its two features.
    """
    one, two, cross = squares[first, first], squares[second, second], squares[first, second]
    of_one, of_two = both[0] * (one > 0), both[1] * (two > 0)
    # Two squares that are nearly the same are used as one.
    apart = one * two - cross**2
    together = apart > LEAST_LEFT * one * two
    known = np.where(together, apart, 1.0)
    alone = np.divide(of_one, one, out=np.zeros_like(one), where=one > 0)
    other = np.divide(of_two, two, out=np.zeros_like(two), where=(two > 0) & (one == 0))
    found = np.stack(
        [
            np.where(together, (two * of_one - cross * of_two) / known, alone),
            np.where(together, (one * of_two - cross * of_one) / known, other),
        ]
    )
    return found, found[0] * of_one + found[1] * of_two


def _tested(parts: Iterator[_Part], fit: _Fit) -> FloatArray:  # (n_pairs,)
    """The statistic of each product; zero where nothing of it is left."""
    sums, squares = np.zeros((2, len(fit.first)))
    for part in parts:
        rests = part.rewards - fit.outcomes @ _with_constant(part.scaled)
        pulls = rests * part.weights
        for own, left in fit.left_of(part):
            sums[own] += left @ pulls
            np.square(left, out=left)
            squares[own] += left @ np.square(pulls)
    known = fit.varies & (squares > 0)
    # Residuals lose as many degrees of freedom as numbers were fitted.
    lost = np.sqrt(max(fit.n_rows - len(fit.outcomes), 0) / fit.n_rows)
    found: FloatArray = np.divide(sums * lost, np.sqrt(squares), out=0 * sums, where=known)
    return found


def _pairs_of(n_features: int) -> Iterator[slice]:
    """For each feature, the places of its pairs with all later ones, among those of all."""
    start = 0
    for n_later in range(n_features - 1, -1, -1):
        yield slice(start, start + n_later)
        start += n_later


def _products(scaled: FloatArray, place: int) -> FloatArray:  # (n_later, n_rows)
    """The products of this feature with all later ones."""
    return np.asarray(scaled[place + 1 :] * scaled[place])


def _with_constant(scaled: FloatArray) -> FloatArray:  # (n_features + 1, n_rows)
    return np.vstack([np.ones(scaled.shape[1]), scaled])
