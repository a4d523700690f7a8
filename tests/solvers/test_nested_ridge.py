"""Ridge on the first terms: against ridge on these terms alone, and against rows held out."""

import numpy as np

from fedopl.solvers import least_squares
from fedopl.solvers.least_squares import PENALTIES
from fedopl.solvers.nested_ridge import held_out_losses, ridge_of_best, ridge_paths, shrunk_solution


def drawn(seed, n_rows=400, n_terms=6, bend=1.0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_rows, n_terms))
    y = x[:, 0] + bend * x[:, 3] + rng.standard_normal(n_rows)
    return x, y


def sums_of(x, y):
    z = np.column_stack([x, np.ones(len(x)), y])
    return (z.T @ z)[None]


def test_the_best_family_is_the_one_of_least_error():
    for bend, used in ((1.0, 4), (0.0, 2)):
        x, y = drawn(3, bend=bend)
        found = ridge_of_best(sums_of(x, y), np.array([400.0]), {2, 4, 6})
        alone = least_squares.ridge(sums_of(x[:, :used], y), np.array([400.0]))
        assert not found.coefficients[0, used:].any()
        assert np.allclose(found.coefficients[0, :used], alone.coefficients[0])
        assert np.allclose(found.intercepts, alone.intercepts)


def means_of(x, y):
    with_one = np.column_stack([x, np.ones(len(x))])
    return (with_one.T @ with_one / len(x))[None], (y @ with_one / len(x))[None]


def test_losses_are_those_of_rows_held_out():
    fitted, held_out = drawn(0), drawn(1)
    paths = ridge_paths(means_of(*fitted), np.arange(4))
    losses = held_out_losses(paths, means_of(*held_out), np.arange(4))
    for place in (0, 20, 40):
        grams, products = means_of(*fitted)
        theta = shrunk_solution(grams, products, np.arange(4), PENALTIES[[place]])[0]
        assert not theta[4:-1].any()
        predicted = held_out[0] @ theta[:-1] + theta[-1]
        expected = np.mean((held_out[1] - predicted) ** 2 - held_out[1] ** 2)
        assert np.isclose(losses[place, 0], expected)
    assert losses[0, 0] < losses[-1, 0]


def test_without_a_penalty_features_that_do_not_vary_have_no_say():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((80, 2))
    columns = np.column_stack([x, np.zeros(80), x[:, 0], np.ones(80)])  # a constant, and a twin
    scores = x @ [1.0, -2.0] + rng.standard_normal(80)
    grams, products = (columns.T @ columns / 80)[None], (columns.T @ scores / 80)[None]
    solved = shrunk_solution(grams, products, np.arange(4), np.zeros(1))[0]
    assert solved[2] == 0
    expected = np.linalg.lstsq(columns[:, [0, 1, 4]], scores)[0]
    np.testing.assert_allclose(columns @ solved, columns[:, [0, 1, 4]] @ expected, atol=1e-8)
