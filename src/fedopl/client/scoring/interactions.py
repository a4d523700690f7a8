"""Tests for interactions of features that both models miss: in weights, and in residuals.

A value is wrong where outcome models and propensities miss the same. Let s be a product of two or
three features, each +1 beyond its median and −1 elsewhere. Let s̃ be the part of s that features do
not explain. For each product and action a, two statistics are compared:

    weights      Σ(1{A=a}/ê − 1)·s̃ / √Σ(·)²       those who took a are unlike everybody in s
    residuals    Σ 1{A=a}·(Y − μ̂)·s̃ / √Σ(·)²      out of fold, outcome models miss s

If either model is right, its statistic is chance. If both miss s, the value of giving everybody a
is too high by the mean of (1{A=a}/ê − 1)·s̃ times the slope of residuals on s̃.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.scoring.fit_numbers import FittedRows, of_takers, standardised
from fedopl.messages.evaluation.interactions_left import feature_products

_MOST_ROWS = 10_000  # evenly spread; more rows would hardly show more
_MOST_AT_ONCE = 1 << 19  # the most numbers of products held in memory
_LEAST_LEFT = 1e-6  # the share of a product's squares below which the rest is rounding
INTERACTION_TESTS = (
    "weights",  # the statistic of those who took the action, against everybody
    "residuals",  # the statistic of the residuals of outcome models
    "unit",  # how much the value is too high if both statistics are 1
    "weights_rest_on",  # the effective number of rows
    "residuals_rest_on",
)


def interaction_tests(rows: FittedRows) -> FloatArray:  # (n_actions, n_products, n_tests)
    """The `INTERACTION_TESTS` of each action and product; zeros where there is nothing to say."""
    rows = rows.spread(_MOST_ROWS)
    n_actions, (n_rows, n_features) = rows.means.shape[1], rows.contexts.shape
    products = feature_products(n_features)
    found = np.zeros((n_actions, len(products), len(INTERACTION_TESTS)))
    signs = np.ascontiguousarray(_signs(rows.contexts).T)
    features = np.column_stack([np.ones(n_rows), standardised(rows)])
    at_once = max(1, _MOST_AT_ONCE // max(n_rows, 1))
    for start in range(0, len(products), at_once):
        some = products[start : start + at_once]
        columns = np.stack([signs[list(places)].prod(axis=0) for places in some], axis=1)
        everybody = _Left.of(rows, np.ones(n_rows, bool), features, columns)
        for action in range(n_actions):
            tested = _tested(rows, action, everybody, features, columns)
            if tested is not None:
                found[action, start : start + at_once] = tested
    return found


def _signs(contexts: FloatArray) -> FloatArray:  # (n_rows, n_features)
    """+1 beyond the median, or beyond the mean if nobody lies beyond the median; else −1."""
    beyond = contexts > np.median(contexts, axis=0)
    nobody = ~beyond.any(axis=0)
    beyond[:, nobody] = contexts[:, nobody] > contexts[:, nobody].mean(axis=0)
    return np.where(beyond, 1.0, -1.0)


def _tested(
    rows: FittedRows, action: int, everybody: "_Left", features: FloatArray, products: FloatArray
) -> FloatArray | None:  # (n_products, n_tests)
    """The tests of these products for one action; None if few rows took it."""
    inverse, residuals = of_takers(rows, action)
    took, known = inverse > 0, rows.propensities[:, action] > 0  # False for NaN
    if took.sum() <= features.shape[1]:
        return None
    everybody = everybody if known.all() else _Left.of(rows, known, features, products)
    takers = _Left.of(rows, took, features, products)
    weights, rests = everybody.against(inverse[known] - 1), takers.against(residuals[took])
    slope = _ratio(rests.size, takers.total)
    unit = weights.size / everybody.weights.sum() * slope
    both = (weights.value != 0) & (rests.value != 0)
    columns = [weights.value, rests.value, unit, weights.rests_on, rests.rests_on]
    return np.where(both[:, None], np.column_stack(columns), 0.0)


class _Statistics(NamedTuple):
    value: FloatArray  # (n_products,)  Σv / √Σv²
    size: FloatArray  # √Σv²
    rests_on: FloatArray  # the effective number of rows, or groups, behind v and s̃²


@dataclass(frozen=True, eq=False, kw_only=True)
class _Left:
    """The part of products that features do not explain, in some rows."""

    left: FloatArray  # (n_rows, n_products)  s̃
    squares: FloatArray  # (n_rows, n_products)  s̃²
    weights: FloatArray  # (n_rows,)
    groups: IntArray | None  # (n_rows,)

    @classmethod
    def of(
        cls, rows: FittedRows, some: BoolArray, features: FloatArray, products: FloatArray
    ) -> "_Left":
        """The unexplained part in these rows; zero if only rounding is left."""
        weights, features = rows.weights[some], features[some]
        weighted = features * weights[:, None]
        inverse = np.linalg.pinv(weighted.T @ features, rcond=1e-10, hermitian=True)
        left = products[some]
        left -= features @ (inverse @ (weighted.T @ left))
        squares = left**2
        rounding = weights @ squares <= _LEAST_LEFT * weights.sum()
        left[:, rounding] = squares[:, rounding] = 0.0
        groups = None if rows.groups is None else rows.groups[some]
        return cls(left=left, squares=squares, weights=weights, groups=groups)

    @cached_property
    def total(self) -> FloatArray:  # (n_products,)
        """Σw·s̃²."""
        return self.weights @ self.squares

    @cached_property
    def rests_on(self) -> FloatArray:  # (n_products,)
        """The effective number of rows behind s̃²."""
        if self.groups is not None:
            return _effective(_by_group(self.squares * self.weights[:, None], self.groups))
        return _ratio(self.total**2, self.weights**2 @ self.squares**2)

    @cached_property
    def sizes(self) -> FloatArray:  # (n_rows, n_products)
        """|s̃|."""
        return np.abs(self.left)

    def against(self, pulls: FloatArray) -> _Statistics:
        """Statistics of v = w·pull·s̃, summed by group, because rows of a group vary together."""
        pulls = self.weights * pulls
        if self.groups is not None:
            own = _by_group(self.left * pulls[:, None], self.groups)
            sums, squares, rests_on = own.sum(axis=0), (own**2).sum(axis=0), _effective(own)
        else:
            sums, squares = pulls @ self.left, pulls**2 @ self.squares
            rests_on = _ratio((np.abs(pulls) @ self.sizes) ** 2, squares)
        size = np.sqrt(squares)
        return _Statistics(_ratio(sums, size), size, np.minimum(rests_on, self.rests_on))


def _by_group(numbers: FloatArray, groups: IntArray) -> FloatArray:  # (n_groups, n_products)
    order = np.argsort(groups, kind="stable")
    _, starts = np.unique(groups[order], return_index=True)
    return np.add.reduceat(numbers[order], starts, axis=0)


def _effective(pulls: FloatArray) -> FloatArray:  # (n_products,)
    """(Σ|u|)²/Σu², column by column."""
    return _ratio(np.abs(pulls).sum(axis=0) ** 2, (pulls**2).sum(axis=0))


def _ratio(of: FloatArray, by: FloatArray) -> FloatArray:
    """The ratio, zero where the divisor is zero."""
    return np.divide(of, by, out=np.zeros_like(by), where=by > 0)
