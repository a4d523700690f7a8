"""Weights for several sources' rows, found from sums, are those of all rows in one place."""

import numpy as np
import pytest

from fedopl.solvers.entropy_balance import (
    SourceSums,
    balance,
    balance_at,
    following,
    units_of,
    weights_at,
)


def sums_at(terms, slopes):
    weights, log_weight = weights_at(terms, slopes, np.ones(len(terms)))
    products = (terms * weights[:, None]).T @ terms
    return SourceSums(log_weight=log_weight, means=weights @ terms, products=products)


def found(parts, means, squares, n_steps=8):
    """Newton's method over these sources' rows, and how many steps it took to be near."""
    whole = np.vstack(list(parts.values()))
    units = units_of(np.append(means, 1.0), np.append(squares, 1.0), whole.var(axis=0))
    target = units.moments(np.append(means, 1.0), np.append(squares, 1.0))
    rows = {name: len(own) for name, own in parts.items()}
    slopes = np.zeros(len(target))
    for step in range(1, n_steps + 1):
        sums = {name: sums_at(units.of(own), slopes) for name, own in parts.items()}
        here = balance_at(slopes, sums, rows, target)
        if here.gap < 0.01:
            return here, units, step
        slopes = following(slopes, here.step())
    return here, units, n_steps


def drawn(places, n_rows=400, seed=0):
    rng = np.random.default_rng(seed)
    return {
        f"source {k}": rng.standard_normal((n_rows + 50 * k, 3)) + place
        for k, place in enumerate(places)
    }


def test_they_are_those_of_all_rows_in_one_place():
    parts = drawn([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0], [-1.0, 0.0, 1.0]])
    there = np.array([0.8, 0.8, 0.3]) + np.random.default_rng(9).standard_normal((500, 3))
    means, squares = there.mean(axis=0), (there**2).mean(axis=0)
    here, units, n_steps = found(parts, means, squares)
    assert 3 <= n_steps <= 7
    pooled = balance(np.vstack(list(parts.values())), means, squares)
    whole = np.vstack([units.of(own) for own in parts.values()])
    joint, _ = weights_at(whole, here.slopes, np.ones(len(whole)))
    assert np.abs(joint - pooled.weights).sum() < 0.02
    ends = np.cumsum([len(own) for own in parts.values()])[:-1]
    shares = [own.sum() for own in np.split(pooled.weights, ends)]
    assert list(here.shares.values()) == pytest.approx(shares, abs=0.01)


@pytest.mark.parametrize("size", [1.0, 1e-6, 1e9], ids=["units", "small units", "large units"])
def test_units_change_nothing(size):
    parts = drawn([[0.5, 0.0, 0.0], [-0.5, 0.0, 0.0]])
    means, squares = np.array([0.4, 0.3, 0.0]), np.array([1.2, 1.1, 1.0])
    plain, _, n_plain = found(parts, means, squares)
    scaled = {name: own * size for name, own in parts.items()}
    other, _, n_other = found(scaled, means * size, squares * size**2)
    assert n_plain == n_other
    assert other.shares == pytest.approx(plain.shares, rel=1e-5)


def test_a_flag_whose_square_is_the_flag_is_balanced():
    rng = np.random.default_rng(0)
    parts = {
        "a": np.column_stack([rng.standard_normal(400), rng.random(400) < 0.3]),
        "b": np.column_stack([rng.standard_normal(400), rng.random(400) < 0.6]),
    }
    here, _, n_steps = found(parts, np.array([0.2, 0.7]), np.array([1.0, 0.7]))
    assert here.gap < 0.01
    assert n_steps <= 6


def test_where_nobody_is_it_ends_without_being_near():
    here, _, _ = found(drawn([[0, 0, 0], [1, 0, 0]]), np.full(3, 9.0), np.full(3, 82.0))
    assert here.gap > 0.1
    assert np.isfinite(here.slopes).all()


def test_a_feature_that_does_not_vary_at_the_target_is_in_the_sources_units():
    units = units_of(np.array([2.0, 5.0, 1.0]), np.array([4.0, 26.0, 1.0]), np.array([9.0, 4.0]))
    assert units.scales == pytest.approx([3.0, 1.0, 1.0])


def test_the_order_of_sources_changes_no_bit():
    parts = drawn([[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    turned = dict(reversed(parts.items()))
    means, squares = np.full(3, 0.3), np.full(3, 1.1)
    assert found(parts, means, squares)[0].slopes.tobytes() == (
        found(turned, means, squares)[0].slopes.tobytes()
    )


@pytest.mark.parametrize("size", [1e3, 1e15])
def test_no_slope_overflows(size):
    terms = drawn([[0, 0, 0]])["source 0"]
    for sign in (-1, 1):
        weights, log_weight = weights_at(terms, np.full(3, sign * size), np.ones(len(terms)))
        assert weights.sum() == pytest.approx(1.0)
        assert np.isfinite(log_weight)
