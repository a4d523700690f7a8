"""Statistics of products of two features: whether one says more of outcomes than features do.

For each action, outcomes are regressed on the features by this client's own rows. Beside features,
a product could stand for a bend of either of its two: so it is measured by what neither they nor
their squares say of it. With v = residual · what is left of the product, t = Σv / √Σv², which is
robust: the rows that outcomes vary most in count no more than others, and |t| ≤ √m if only m rows
speak for it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.rows.chunks import Chunk

MOST_AT_ONCE = 1 << 22  # numbers of products that are held in memory
LEAST_LEFT = 1e-9  # the share of a product's squares below which the rest is rounding


@dataclass(frozen=True, eq=False, kw_only=True)
class ProductTests:
    """What one client's rows say of the products, by action."""

    statistics: FloatArray  # (n_actions, n_pairs), 0 where nothing varies
    rests_on: FloatArray  # (n_actions, n_pairs), about how many rows the product varies in
    n_rows: IntArray  # (n_actions,)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Part:
    """Some rows that took one action, with features as products multiply them."""

    scaled: FloatArray  # (n_rows, n_features)
    rewards: FloatArray  # (n_rows,)
    weights: FloatArray  # (n_rows,)


def product_tests(
    chunks: Callable[[], Iterable[Chunk]],
    scaling: Callable[[FloatArray], FloatArray],
    n_actions: int,
    n_features: int,
    every: int = 1,
) -> ProductTests:
    """Go through the training rows, or one of `every` so many, twice for each action."""
    first, second = np.triu_indices(n_features, 1)
    found, rests_on = np.zeros((2, n_actions, len(first)))
    n_rows = np.zeros(n_actions, np.int64)
    at_once = max(1, MOST_AT_ONCE // max(len(first), 1))
    for action in range(n_actions):

        def parts(action: int = action) -> Iterator[_Part]:
            return _parts(chunks(), scaling, action, (every, at_once))

        fit = _fitted(parts(), first, second)
        if fit is not None:
            found[action], rests_on[action] = _tested(parts(), fit)
            n_rows[action] = fit.n_rows
    return ProductTests(statistics=found, rests_on=rests_on, n_rows=n_rows)


def _parts(
    chunks: Iterable[Chunk],
    scaling: Callable[[FloatArray], FloatArray],
    action: int,
    steps: tuple[int, int],
) -> Iterator[_Part]:
    """Rows that took an action: every n-th of them, and a limited number at once."""
    every, at_once = steps
    for chunk in chunks:
        training = chunk.training
        own = np.flatnonzero(chunk.data.actions[training] == action)[::every]
        weights = chunk.weights(training)
        for start in range(0, len(own), at_once):
            rows = own[start : start + at_once]
            yield _Part(
                scaled=scaling(chunk.data.contexts[rows]),
                rewards=chunk.data.rewards[rows],
                weights=np.ones(len(rows)) if weights is None else weights[rows],
            )


@dataclass(frozen=True, eq=False, kw_only=True)
class _Fit:
    """What features say of outcomes, of their squares and of products, and squares of products."""

    first: IntArray  # (n_pairs,), the place of a pair's first feature
    second: IntArray  # (n_pairs,)
    n_rows: int
    outcomes: FloatArray  # (n_features + 1,)
    squares: FloatArray  # (n_features + 1, n_features)
    products: FloatArray  # (n_features + 1, n_pairs)
    by_squares: FloatArray  # (2, n_pairs), of what features leave of its two features' squares
    varies: BoolArray  # (n_pairs,), whether anything is left of a product

    def left_of(self, part: _Part) -> tuple[FloatArray, FloatArray]:
        """Of these rows' outcomes (n_rows,) and products (n_rows, n_pairs)."""
        features = _with_constant(part.scaled)
        squares = np.square(part.scaled) - features @ self.squares
        products = part.scaled[:, self.first] * part.scaled[:, self.second]
        products -= features @ self.products
        for feature, own in zip((self.first, self.second), self.by_squares, strict=True):
            products -= squares[:, feature] * own
        return part.rewards - features @ self.outcomes, products


def _fitted(parts: Iterator[_Part], first: IntArray, second: IntArray) -> _Fit | None:
    """The regressions, from sums; None if no row took the action."""
    n_rows, total = 0, 0.0
    grams: FloatArray = np.zeros(0)
    beside: FloatArray = np.zeros(0)
    sizes: FloatArray = np.zeros(len(first))
    for part in parts:
        columns = np.column_stack(
            [_with_constant(part.scaled), np.square(part.scaled), part.rewards]
        )
        products = part.scaled[:, first] * part.scaled[:, second]
        weighted = columns * part.weights[:, None]
        grams = grams + weighted.T @ columns if n_rows else weighted.T @ columns
        beside = beside + weighted.T @ products if n_rows else weighted.T @ products
        sizes = sizes + part.weights @ np.square(products)
        n_rows, total = n_rows + len(columns), total + float(part.weights.sum())
    if not n_rows or total <= 0:
        return None
    plain = (len(grams) - 2) // 2 + 1  # features and the constant
    # Flags of one column add up to the constant, so sums may have no inverse.
    scale = np.sqrt(np.maximum(np.diagonal(grams)[:plain], np.finfo(float).tiny))
    inverse = np.linalg.pinv(grams[:plain, :plain] / np.outer(scale, scale), hermitian=True)
    inverse /= np.outer(scale, scale)
    on_squares = inverse @ grams[:plain, plain:-1]
    on_products = inverse @ beside[:plain]
    squares = grams[plain:-1, plain:-1] - grams[plain:-1, :plain] @ on_squares
    both = beside[plain:-1] - grams[plain:-1, :plain] @ on_products
    # A flag's square is the flag, of which nothing is left.
    bends = np.diagonal(squares) > LEAST_LEFT * np.diagonal(grams)[plain:-1]
    by_squares, explained = _by_two(squares * np.outer(bends, bends), both, first, second)
    left = sizes - (beside[:plain] * on_products).sum(axis=0) - explained
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
    """Regress each product on the squares of its own two features; and what they explain."""
    one, two, cross = squares[first, first], squares[second, second], squares[first, second]
    pairs = np.arange(len(first))
    of_one, of_two = both[first, pairs] * (one > 0), both[second, pairs] * (two > 0)
    # Two squares that are nearly one are used as one.
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


def _tested(parts: Iterator[_Part], fit: _Fit) -> tuple[FloatArray, FloatArray]:
    """The statistics (n_pairs,), and on about how many rows each product rests."""
    sums, squares, second, fourth = np.zeros((4, len(fit.first)))
    for part in parts:
        rests, products = fit.left_of(part)
        moved = products * (rests * part.weights)[:, None]
        sums += moved.sum(axis=0)
        squares += np.square(moved).sum(axis=0)
        own = np.square(products) * part.weights[:, None]
        second += own.sum(axis=0)
        fourth += np.square(own).sum(axis=0)
    known = fit.varies & (squares > 0) & (fourth > 0)
    # As many numbers as were fitted are missing from the residuals.
    lost = np.sqrt(max(fit.n_rows - len(fit.outcomes), 0) / fit.n_rows)
    statistics = np.divide(sums * lost, np.sqrt(squares), out=np.zeros_like(sums), where=known)
    rests_on = np.divide(second**2, fourth, out=np.zeros_like(second), where=known)
    return statistics, rests_on


def _with_constant(scaled: FloatArray) -> FloatArray:  # (n_rows, n_features + 1)
    return np.column_stack([np.ones(len(scaled)), scaled])
