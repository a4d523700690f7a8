"""Entropy balancing: weights reach the other population's means and squares."""

import numpy as np
import pytest
from scipy.optimize import minimize

from fedopl.solvers.entropy_balance import balance, rows_behind


def drawn(n_rows=400, n_features=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n_rows, n_features))


def moved(by, n_rows=300, seed=1):
    there = drawn(n_rows, 3, seed) + by
    return there.mean(axis=0), (there**2).mean(axis=0)


@pytest.mark.parametrize("own", [None, np.linspace(0.5, 2.0, 400)], ids=["equal", "weighed"])
def test_weighted_means_and_squares_are_the_targets(own):
    contexts, (means, squares) = drawn(), moved(0.4)
    found = balance(contexts, means, squares, own)
    assert found.weights.sum() == pytest.approx(1.0)
    assert (found.weights > 0).all()
    # But for the ridge, which moves a mean by less than a thousandth of a standard deviation.
    assert found.weights @ contexts == pytest.approx(means, abs=2e-3)
    assert found.weights @ contexts**2 == pytest.approx(squares, abs=4e-3)
    assert found.largest_gap < 2e-3


def test_they_are_those_of_a_general_minimiser():
    contexts, (means, squares) = drawn(120), moved(0.3)
    scales = np.sqrt(squares - means**2)
    apart = (contexts - means) / scales
    columns = np.hstack([apart, apart**2 - 1])
    dual = minimize(
        lambda eta: np.log(np.mean(np.exp(columns @ eta))) + 5e-5 * eta @ eta,
        np.zeros(6),
        method="BFGS",
        options={"gtol": 1e-9},
    )
    expected = np.exp(columns @ dual.x)
    expected /= expected.sum()
    assert balance(contexts, means, squares).weights == pytest.approx(expected, rel=1e-5)


def test_rows_that_look_like_the_target_already_keep_their_weights():
    contexts = drawn()
    own = np.linspace(1.0, 3.0, 400)
    means = own @ contexts / own.sum()
    found = balance(contexts, means, own @ contexts**2 / own.sum(), own)
    assert found.weights == pytest.approx(own / own.sum(), rel=1e-6)


def test_the_unit_of_a_number_and_where_it_is_measured_from_change_nothing():
    contexts, (means, squares) = drawn(), moved(0.4)
    scale, shift = np.array([1e-3, 1.0, 1e4]), np.array([5.0, -2020.0, 1e5])
    there = means * scale + shift
    there_squared = squares * scale**2 + 2 * means * scale * shift + shift**2
    found = balance(contexts * scale + shift, there, there_squared)
    assert found.weights == pytest.approx(balance(contexts, means, squares).weights, rel=1e-4)


def test_flags_whose_square_is_the_flag_are_balanced_too():
    rng = np.random.default_rng(0)
    contexts = (rng.random((300, 2)) < [0.3, 0.6]).astype(float)
    found = balance(contexts, np.array([0.5, 0.5]), np.array([0.5, 0.5]))
    assert found.weights @ contexts == pytest.approx([0.5, 0.5], abs=1e-3)


@pytest.mark.parametrize("by", [6.0, 50.0], ids=["far", "further"])
def test_where_nobody_is_the_gap_says_so_and_weights_stay_finite(by):
    found = balance(drawn(), *moved(by))
    assert np.isfinite(found.weights).all()
    assert found.largest_gap > 0.5 or rows_behind(found.weights) < 5


def test_a_number_that_never_varies_in_either_place_is_balanced_only_if_it_is_the_same():
    contexts = np.column_stack([drawn(100, 1), np.ones(100)])
    same = balance(contexts, np.array([0.0, 1.0]), np.array([1.0, 1.0]))
    other = balance(contexts, np.array([0.0, 2.0]), np.array([1.0, 4.0]))
    assert same.largest_gap < 0.1 < other.largest_gap


def test_effective_rows_are_all_of_equal_ones_and_one_of_a_single_one():
    assert rows_behind(np.full(7, 0.2)) == pytest.approx(7)
    assert rows_behind(np.array([1.0, 0.0, 0.0])) == 1
    assert rows_behind(np.zeros(3)) == 0
