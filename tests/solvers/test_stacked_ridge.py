"""Weighted means of ridge regressions, from sums: which weights, and who has a say in them."""

import numpy as np
import pytest

from fedopl.solvers.nested_ridge import (
    chosen_on,
    fold_sets,
    models_by_size,
    place_without,
    residual_squares,
    simplex_weights,
)


def test_weights_are_the_best_on_the_simplex():
    rng = np.random.default_rng(0)
    for _ in range(20):
        residuals = rng.standard_normal((30, 4)) * rng.uniform(0.2, 3, 4) + rng.standard_normal()
        squares = residuals.T @ residuals
        weights = simplex_weights(squares)
        assert np.isclose(weights.sum(), 1)
        assert weights.min() >= 0
        others = rng.dirichlet(np.full(4, 0.4), 2_000)
        assert (
            weights @ squares @ weights <= np.einsum("wi,ij,wj->w", others, squares, others).min()
        )
    assert np.isclose(simplex_weights(np.zeros((3, 3))).sum(), 1)


@pytest.mark.parametrize("n_folds", [3, 5, 12])
def test_no_two_folds_are_compared_by_models_that_saw_either(n_folds):
    sets = fold_sets(n_folds)
    assert len(sets) == len(set(sets)) <= 3 * n_folds + 1
    for part in range(n_folds + 1):
        assert sets[part] == ({part} if part < n_folds else set())
        for fold in chosen_on(part, n_folds):
            assert fold != part
            assert sets[place_without(part, fold, n_folds)] == {part, fold} - {n_folds}


def test_residuals_are_those_of_rows():
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, 40, 3)), rng.standard_normal((2, 40))
    z = np.concatenate([x, np.ones((2, 40, 1)), y[..., None]], axis=-1)
    models = rng.standard_normal((5, 2, 4))
    found = residual_squares(models, np.swapaxes(z, 1, 2) @ z)
    for action in range(2):
        left = y[action] - models[:, action] @ z[action, :, :-1].T
        np.testing.assert_allclose(found[action], left @ left.T)


def test_models_without_folds_are_those_of_the_other_rows():
    rng = np.random.default_rng(2)
    z = rng.standard_normal((4, 1, 30, 5))  # folds, actions, rows, three terms and so on
    z[..., -2] = 1.0
    sums, squared = np.swapaxes(z, -1, -2) @ z, np.full((4, 1), 30.0)
    models = models_by_size(sums, squared, (1, 3))
    for place, left_out in enumerate(fold_sets(4)):
        kept = [fold for fold in range(4) if fold not in left_out]
        (alone,) = models_by_size(
            np.tile(sums[kept].sum(axis=0) / 3, (3, 1, 1, 1)),
            np.full((3, 1), 10.0 * len(kept)),
            (3,),
        )[3]
        np.testing.assert_allclose(models[place, 1], alone, rtol=1e-6)
        assert not models[place, 0, :, 1:-1].any()
    assert np.isnan(models_by_size(sums[:3] * 0, squared[:3] * 0, (3,))[..., -1]).all()
