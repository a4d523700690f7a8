"""Products of steps: found where outcome models miss them, from rows of other folds, or not."""

import numpy as np
import pytest

from fedopl.client.scoring import corrected_scores
from fedopl.client.scoring.corrected_scores import ProductSums, find_products
from fedopl.client.scoring.fit_numbers import FittedRows

BOTH = np.ones(2, np.bool_)


def fitted(n_rows=400, effect=None, *, seed=0, noise=1.0, repeat=1, weights=None):
    """Rows of two actions, with models that say 0 of every outcome."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.standard_normal((n_rows, 3)), rng.integers(0, 2, n_rows)])
    left = noise * rng.standard_normal(n_rows) + (0.0 if effect is None else effect(x))
    actions, folds = rng.integers(0, 2, n_rows), np.arange(n_rows) % 5
    groups = None if repeat == 1 else np.repeat(np.arange(n_rows), repeat)
    return FittedRows(
        contexts=np.repeat(x, repeat, axis=0),
        actions=np.repeat(actions, repeat),
        rewards=np.repeat(left, repeat),
        weights=np.ones(n_rows * repeat) if weights is None else weights,
        groups=groups,
        folds=np.repeat(folds, repeat),
        means=np.zeros((n_rows * repeat, 2)),
        propensities=np.full((n_rows * repeat, 2), 0.5),
    )


def corner(x):
    """Two numbers beyond thresholds, neither of which is at the median."""
    return np.where((x[:, 0] > 0.4) == (x[:, 1] > -0.5), 1.0, -1.0)


def triple(x):
    return 1.2 * np.tanh(2 * x[:, 0] * x[:, 1] * x[:, 2])


@pytest.mark.parametrize(("effect", "places"), [(corner, {0, 1}), (triple, {0, 1, 2})])
def test_what_two_or_three_features_do_together_is_found(effect, places):
    rows = fitted(effect=effect)
    found = find_products(rows, BOTH)
    assert {step.place for step in found.products.products[0]} == places
    truth = effect(rows.contexts)
    for action in (0, 1):
        assert np.corrcoef(found.out_of_fold[:, action], truth)[0, 1] > 0.7
        fresh = fitted(2_000, effect, seed=1).contexts
        left = effect(fresh) - found.products.of(fresh)[:, action]
        assert left.var() < 0.6 * effect(fresh).var()


def test_nothing_is_found_in_noise():
    found = [find_products(fitted(150, seed=seed), BOTH) for seed in range(40)]
    assert sum(one is not None for one in found) <= 1


def test_rows_of_a_group_are_no_more_evidence_than_one():
    """Eight copies of each row look like a sure thing to whoever takes them for rows."""
    apart, together = 0, 0
    for seed in range(6):
        rows = fitted(60, seed=seed, repeat=8)
        rows.folds[:] = np.random.default_rng(seed).integers(0, 5, len(rows.folds))
        alone = FittedRows(**{**vars(rows), "groups": None})
        apart += find_products(alone, BOTH) is not None
        # Copies in other folds predict a row; the standard error by group says that few do.
        whole = FittedRows(**{**vars(rows), "folds": rows.groups % 5})
        together += find_products(whole, BOTH) is not None
    assert apart >= 5
    assert together <= 1


def test_an_outcome_has_no_say_in_its_own_fold(monkeypatch):
    monkeypatch.setattr(corrected_scores, "_how_many", lambda *_: 2)
    rows = fitted(effect=corner)
    before = find_products(rows, BOTH).out_of_fold
    own = rows.folds == 3
    rewards = np.where(own, -rows.rewards, rows.rewards)
    after = find_products(FittedRows(**{**vars(rows), "rewards": rewards}), BOTH).out_of_fold
    np.testing.assert_array_equal(after[own], before[own])
    assert not np.allclose(after[~own], before[~own])


def test_nothing_is_said_of_an_action_that_is_not_allowed():
    found = find_products(fitted(800, effect=corner), np.array([True, False]))
    assert found.products.slopes[:, 0].all()
    assert not found.products.slopes[:, 1].any()
    assert not found.out_of_fold[:, 1].any()
    assert find_products(fitted(effect=corner), ~BOTH) is None


def test_only_the_proportions_of_weights_matter():
    rows = fitted(effect=corner)
    once = find_products(rows, BOTH)
    thrice = find_products(FittedRows(**{**vars(rows), "weights": 3 * rows.weights}), BOTH)
    np.testing.assert_allclose(thrice.out_of_fold, once.out_of_fold, rtol=1e-12)


def test_one_outcome_far_off_makes_no_product():
    for seed in range(5):
        rows = fitted(seed=seed)
        rows.rewards[7] = 80.0
        assert find_products(rows, BOTH) is None


# --- sums of all products -------------------------------------------------------------------------


def sums_of(n_rows, n_features, n_actions=2):
    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((n_rows, n_features))
    actions = rng.integers(0, n_actions, n_rows)
    return contexts, actions, ProductSums(contexts, actions, n_actions)


def test_sums_of_products_are_those_of_their_signs():
    contexts, actions, sums = sums_of(150, 4)
    values = np.random.default_rng(1).standard_normal(150)
    found, seen = sums.of(values), set()
    for index in np.flatnonzero(sums.exist):
        signs = np.prod([step.of(contexts) for step in sums[index]], axis=0)
        expected = np.bincount(actions, values * signs, 2)
        np.testing.assert_allclose(found[index], expected, atol=1e-12)
        seen.add(sums[index])
    assert len(seen) == 6 * 7**2 + 4 * 5**3


TRIED = {
    (300, 12): 66 * 7**2 + 220 * 5**3,
    (4_000, 12): 66 * 7**2 + 220 * 5**3,
    (300, 40): 780 * 7**2,
    (300, 60): 0,
}


@pytest.mark.parametrize("size", TRIED, ids=str)
def test_no_more_is_tried_than_there_is_room_for(size):
    *_, sums = sums_of(*size)
    assert np.count_nonzero(sums.exist) == TRIED[size]


def test_many_actions_leave_room_for_fewer_cuts():
    *_, few = sums_of(300, 12)
    *_, many = sums_of(300, 12, 100)
    assert 0 < np.count_nonzero(many.exist) < np.count_nonzero(few.exist)


def test_features_with_few_values_have_steps_where_they_have_rows():
    x = np.zeros((200, 4))
    x[:100, 0], x[:5, 1] = 1.0, 1.0  # a flag, and one that hardly anybody has
    x[:, 2] = np.arange(200) % 3
    sums = ProductSums(x, np.zeros(200, np.int64), 1)
    assert [sums[k] for k in np.flatnonzero(sums.exist)] == [((0, 0.0), (2, cut)) for cut in (0, 1)]


def test_nothing_is_found_where_nothing_varies():
    rows = fitted(effect=corner)
    assert find_products(FittedRows(**{**vars(rows), "contexts": 0 * rows.contexts}), BOTH) is None
