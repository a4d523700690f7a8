"""What everybody's outcome models leave of a client's outcomes, from its own sums."""

import numpy as np

from fedopl.client.rows.fold_sums import fold_sums
from fedopl.client.rows.folds import assign_folds_and_hold_out
from fedopl.client.scoring.outcome import with_own_rest
from fedopl.client.table.logged_data import LoggedData
from fedopl.solvers import least_squares

N_FEATURES, N_TERMS = 2, 4


def drawn(shift):
    rng = np.random.default_rng(0)
    terms = rng.normal(3.0, 1.0, (600, N_TERMS))
    actions = rng.integers(0, 2, 600)
    rewards = 50 + terms @ [1.0, -1.0, 0.5, 2.0] + shift * terms[:, 0]
    data = LoggedData(terms, actions, rewards + rng.standard_normal(600), action_names="ab")
    return data, assign_folds_and_hold_out(data, 3, 0.25, 0)


def shared():
    """Models of everybody else, for three folds and the rows set apart."""
    return np.tile([1.0, -1.0, 0.5, 2.0, 50.0], (4, 2, 1))


def test_it_is_ridge_on_what_is_left():
    data, folds = drawn(2.0)
    found = with_own_rest(shared(), fold_sums(data, folds), N_FEATURES)
    rest = data.rewards - data.contexts @ shared()[0, 0, :-1] - shared()[0, 0, -1]
    for part in range(4):
        rows = folds.learns_from(part) & (data.actions == 1)
        z = np.column_stack([data.contexts[rows, :N_FEATURES], np.ones(rows.sum()), rest[rows]])
        alone = least_squares.ridge((z.T @ z)[None], np.array([float(rows.sum())]))
        own = found[part, 1] - shared()[part, 1]
        assert np.allclose(own[:N_FEATURES], alone.coefficients[0], atol=1e-6)
        assert np.isclose(own[-1], alone.intercepts[0], atol=1e-5)
        assert not own[N_FEATURES:-1].any()


def test_it_finds_how_a_client_differs_and_little_where_it_does_not():
    moved = {
        shift: with_own_rest(shared(), fold_sums(*drawn(shift)), N_FEATURES) - shared()
        for shift in (2.0, 0.0)
    }
    assert np.allclose(moved[2.0][..., 0], 2.0, atol=0.3)
    assert np.abs(moved[0.0][..., :N_FEATURES]).max() < 0.2


def test_an_action_without_a_model_stays_without():
    parameters = shared()
    parameters[:, 0] = np.nan
    data, folds = drawn(1.0)
    found = with_own_rest(parameters, fold_sums(data, folds), N_FEATURES)
    assert np.isnan(found[:, 0, -1]).all()
    assert np.isfinite(found[:, 1]).all()
