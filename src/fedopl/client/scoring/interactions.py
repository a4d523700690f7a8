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
from functools import reduce
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.decompositions import symmetric_pinv
from fedopl.client.scoring.fit_numbers import FittedRows, of_takers, standardised
from fedopl.messages.evaluation.interactions_left import feature_products

_MOST_ROWS = 10_000  # evenly spread; more rows would hardly show more
_NUMBERS_AT_ONCE = 1 << 18  # of products: few enough for a cache, enough for fast matrix products
_LEAST_LEFT = 1e-6  # the share of a product's squares below which the rest is rounding
INTERACTION_TESTS = (
    "weights",  # the statistic of those who took the action, against everybody
    "residuals",  # the statistic of the residuals of outcome models
    "unit",  # how much the value is too high if both statistics are 1
)


def interaction_tests(rows: FittedRows) -> FloatArray:  # (n_actions, n_products, n_tests)
    """The `INTERACTION_TESTS` of each action and product; zeros where there is nothing to say."""
    rows = rows.spread(_MOST_ROWS)
    rows = rows.taken(np.argsort(rows.actions, kind="stable"))  # those of an action in a slice
    n_actions, (n_rows, n_features) = rows.means.shape[1], rows.contexts.shape
    products = feature_products(n_features)
    found = np.zeros((n_actions, len(products), len(INTERACTION_TESTS)))
    signs = np.ascontiguousarray(_signs(rows.contexts).T)
    features = np.vstack([np.ones(n_rows), standardised(rows).T])
    tested = [_Tested.of(rows, action, features) for action in range(n_actions)]
    everybody = _Some.of(rows, slice(None), features)
    at_once = max(1, _NUMBERS_AT_ONCE // max(n_rows, 1))
    for start in range(0, len(products), at_once):
        some = products[start : start + at_once]
        columns = np.stack([reduce(np.multiply, signs[list(places)]) for places in some])
        of_all = everybody.left_of(columns)
        for action, own in enumerate(tested):
            if own is not None:
                found[action, start : start + at_once] = own.tests(columns, of_all)
    return found


def _signs(contexts: FloatArray) -> FloatArray:  # (n_rows, n_features)
    """+1 beyond the median, or beyond the mean if nobody lies beyond the median; else −1."""
    beyond = contexts > np.median(contexts, axis=0)
    nobody = ~beyond.any(axis=0)
    beyond[:, nobody] = contexts[:, nobody] > contexts[:, nobody].mean(axis=0)
    return np.where(beyond, 1.0, -1.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Some:
    """Some rows, and what it takes to find the part of products that features do not explain."""

    rows: slice | IntArray
    features: FloatArray  # (n_features + 1, n_rows)
    solved: FloatArray  # (n_rows, n_features + 1)  of a product, the slopes on features
    weights: FloatArray  # (n_rows,)
    groups: IntArray | None  # (n_rows,)

    @classmethod
    def of(cls, rows: FittedRows, some: slice | IntArray, features: FloatArray) -> "_Some":
        weights, features = rows.weights[some], features[:, some]
        weighted = features * weights
        inverse = symmetric_pinv(weighted @ features.T, rcond=1e-10)
        groups = None if rows.groups is None else rows.groups[some]
        return cls(
            rows=some,
            features=np.ascontiguousarray(features),
            solved=np.ascontiguousarray((inverse @ weighted).T),
            weights=weights,
            groups=groups,
        )

    def left_of(self, products: FloatArray) -> "_Left":
        """The unexplained part of products, (n_products, n_all); zero if only rounding is left."""
        own = products[:, self.rows]
        left = (own @ self.solved) @ self.features
        np.subtract(own, left, out=left)
        squares = np.square(left)
        rounding = squares @ self.weights <= _LEAST_LEFT * self.weights.sum()
        left[rounding] = squares[rounding] = 0.0
        return _Left(self, left, squares)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Tested:
    """One action: who took it, and how much each row pulls in either statistic."""

    takers: _Some
    residuals: FloatArray  # (n_takers,)
    known: _Some | None  # the rows with a propensity, None if all have one
    beyond: FloatArray  # (n_known,)  1{A=a}/ê − 1

    @classmethod
    def of(cls, rows: FittedRows, action: int, features: FloatArray) -> "_Tested | None":
        """None if few rows took the action."""
        inverse, residuals = of_takers(rows, action)
        took, known = np.flatnonzero(inverse), rows.propensities[:, action] > 0  # False for NaN
        if len(took) <= len(features):
            return None
        # Rows are sorted by action, and hardly ever lack a score.
        has_gaps = took[-1] - took[0] >= len(took)
        takers = took if has_gaps else slice(int(took[0]), int(took[-1]) + 1)
        some = None if known.all() else _Some.of(rows, np.flatnonzero(known), features)
        return cls(
            takers=_Some.of(rows, takers, features),
            residuals=residuals[took],
            known=some,
            beyond=inverse[known] - 1,
        )

    def tests(self, products: FloatArray, of_all: "_Left") -> FloatArray:  # (n_products, n_tests)
        """The tests of these products, of which all rows leave this."""
        everybody = of_all if self.known is None else self.known.left_of(products)
        takers = self.takers.left_of(products)
        weights, of_weights = everybody.against(self.beyond)
        rests, size = takers.against(self.residuals)
        unit = of_weights / everybody.rows.weights.sum() * _ratio(size, takers.total)
        both = (weights != 0) & (rests != 0)
        return np.where(both[:, None], np.column_stack([weights, rests, unit]), 0.0)


class _Left(NamedTuple):
    """The part of products that features do not explain, in some rows."""

    rows: _Some
    left: FloatArray  # (n_products, n_rows)  s̃
    squares: FloatArray  # (n_products, n_rows)  s̃²

    @property
    def total(self) -> FloatArray:  # (n_products,)
        """Σw·s̃²."""
        return self.squares @ self.rows.weights

    def against(self, pulls: FloatArray) -> tuple[FloatArray, FloatArray]:  # (n_products,) each
        """Σv / √Σv² and √Σv² of v = w·pull·s̃, by group, because rows of a group vary together."""
        pulls, groups = self.rows.weights * pulls, self.rows.groups
        if groups is not None:
            order = np.argsort(groups, kind="stable")
            _, starts = np.unique(groups[order], return_index=True)
            own = np.add.reduceat((self.left * pulls)[:, order], starts, axis=1)
            sums, squares = own.sum(axis=1), (own**2).sum(axis=1)
        else:
            sums, squares = self.left @ pulls, self.squares @ pulls**2
        size = np.sqrt(squares)
        return _ratio(sums, size), size


def _ratio(of: FloatArray, by: FloatArray) -> FloatArray:
    """The ratio, zero where the divisor is zero."""
    return np.divide(of, by, out=np.zeros_like(by), where=by > 0)
