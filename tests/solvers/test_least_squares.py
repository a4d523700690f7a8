import numpy as np
import pytest

from fedopl.solvers import least_squares


def sums_of(contexts, rewards):
    z = np.column_stack([contexts, np.ones(len(rewards)), rewards])
    return z.T @ z


@pytest.fixture
def problem():
    rng = np.random.default_rng(3)
    contexts = rng.standard_normal((60, 4)) * [1, 100, 0.01, 5]
    rewards = 3 + contexts @ [1.0, 0.02, 50.0, 0.0] + rng.standard_normal(60)
    return contexts, rewards


def test_ordinary_is_least_squares(problem):
    contexts, rewards = problem
    models = least_squares.ordinary(sums_of(contexts, rewards))
    expected = np.linalg.lstsq(np.column_stack([contexts, np.ones(60)]), rewards, rcond=None)[0]
    np.testing.assert_allclose([*models.coefficients, models.intercepts], expected, rtol=1e-9)


def test_a_constant_feature_gets_no_weight(problem):
    contexts, rewards = problem
    contexts = np.column_stack([contexts, np.full(60, 1e6)])
    for models in (
        least_squares.ordinary(sums_of(contexts, rewards)),
        least_squares.ridge(sums_of(contexts, rewards), np.array(60.0)),
    ):
        assert models.coefficients[-1] == 0


def test_more_features_than_rows_are_shrunk_and_finite():
    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((10, 30))
    rewards = rng.standard_normal(10)
    models = least_squares.ridge(sums_of(contexts, rewards), np.array(10.0))
    assert np.isfinite(models.coefficients).all()
    assert models.penalties > 0.1


def test_one_row_predicts_its_own_reward_everywhere():
    models = least_squares.ridge(sums_of(np.array([[1.0, 2.0]]), np.array([5.0])), np.array(1.0))
    np.testing.assert_allclose(models.coefficients, 0)
    np.testing.assert_allclose(models.intercepts, 5)


def test_no_rows_predict_nothing():
    models = least_squares.ridge(np.zeros((4, 4)), np.array(0.0))
    assert not models.supported
    assert np.isnan(models.intercepts)


def test_ridge_penalises_noise_and_spares_signal():
    rng = np.random.default_rng(1)
    contexts = rng.standard_normal((300, 20))
    noise = rng.standard_normal(300)
    strong = least_squares.ridge(sums_of(contexts, noise), np.array(300.0)).penalties
    weak = least_squares.ridge(
        sums_of(contexts, contexts.sum(axis=1) + 0.1 * noise), np.array(300.0)
    ).penalties
    assert strong > 100 * weak


def test_joint_models_share_one_penalty():
    rng = np.random.default_rng(2)
    stack = np.stack([sums_of(rng.standard_normal((50, 3)), rng.standard_normal(50))] * 2)
    stack = np.stack([stack, 2 * stack])
    penalties = least_squares.ridge(stack, np.full((2, 2), 50.0), joint=True).penalties
    assert penalties.shape == (2, 2)
    assert (penalties[:, 0] == penalties[:, 1]).all()


def watched_eigh(monkeypatch):
    """How many matrices each call takes apart."""
    taken, eigh = [], np.linalg.eigh

    def watching(stack):
        taken.append(int(np.prod(stack.shape[:-2])))
        return eigh(stack)

    monkeypatch.setattr(np.linalg, "eigh", watching)
    return taken


def stack_of(n_parts, n_models, n_features=3, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(2, 1, (n_parts, n_models, 40, n_features + 2))
    rows[..., -2] = 1.0
    return rows.swapaxes(-1, -2) @ rows


def test_rewards_of_the_same_rows_share_one_gram(monkeypatch):
    sums = stack_of(1, 4)[0]
    sums[:, :-1, :-1] = sums[0, :-1, :-1]
    apart = least_squares.ordinary(sums)
    taken = watched_eigh(monkeypatch)
    shared = least_squares.ordinary_of(sums[:1, :-1, :-1], sums[:, :-1, -1], sums[:, -1, -1])
    assert taken == [1]
    np.testing.assert_allclose(shared.coefficients, apart.coefficients, rtol=1e-9)
    np.testing.assert_allclose(shared.intercepts, apart.intercepts, rtol=1e-9)
    assert shared.penalties.shape == apart.penalties.shape == (4,)


@pytest.mark.parametrize("joint", [False, True])
def test_a_large_stack_is_solved_part_by_part(monkeypatch, joint):
    sums, rows = stack_of(3, 5), np.full((3, 5), 40.0)
    sums[1, 2] = 0.0  # no rows at all
    together = [least_squares.ordinary(sums), least_squares.ridge(sums, rows, joint=joint)]
    monkeypatch.setattr(least_squares, "NUMBERS_AT_ONCE", 100)
    taken = watched_eigh(monkeypatch)
    apart = [least_squares.ordinary(sums), least_squares.ridge(sums, rows, joint=joint)]
    assert taken == [5] * 6
    for one, other in zip(together, apart, strict=True):
        for field in ("coefficients", "intercepts", "penalties"):
            np.testing.assert_array_equal(getattr(one, field), getattr(other, field))


def rare_and_frequent(same_slopes, seed=5):
    """Sums of a frequent action and of one that a few rows took, and rows of the rare one."""
    rng = np.random.default_rng(seed)
    slopes = rng.standard_normal(12)
    other = slopes if same_slopes else rng.standard_normal(12)
    frequent, rare, more = (rng.standard_normal((n, 12)) for n in (2000, 25, 1000))
    sums = [
        sums_of(frequent, frequent @ slopes + 1 + rng.standard_normal(2000)),
        sums_of(rare, rare @ other - 1 + rng.standard_normal(25)),
    ]
    return np.array(sums), np.array([2000.0, 25.0]), more, more @ other - 1


@pytest.mark.parametrize(("same_slopes", "most"), [(True, 0.6), (False, 1.1)])
def test_few_rows_borrow_slopes_from_all_others_where_that_helps(same_slopes, most):
    sums, rows, contexts, truth = rare_and_frequent(same_slopes)
    toward_all = least_squares.ridge_toward_all(sums, rows)
    alone = least_squares.ridge(sums, rows)
    errors = [
        np.sqrt(np.mean((contexts @ one.coefficients[1] + one.intercepts[1] - truth) ** 2))
        for one in (toward_all, alone)
    ]
    assert errors[0] < most * errors[1]


def test_shrinking_toward_all_is_ridge_on_what_the_model_of_all_leaves():
    rng = np.random.default_rng(0)
    contexts = [rng.standard_normal((n, 3)) + 2 for n in (40, 9)]
    rewards = [rng.standard_normal(len(x)) + x[:, 0] for x in contexts]
    sums = np.array([sums_of(x, y) for x, y in zip(contexts, rewards, strict=True)])
    found = least_squares.ridge_toward_all(sums, np.array([40.0, 9.0]))
    everybody = least_squares.ridge(sums.sum(axis=0), np.array(49.0))
    rest = rewards[1] - contexts[1] @ everybody.coefficients - everybody.intercepts
    own = least_squares.ridge(sums_of(contexts[1], rest), np.array(9.0))
    np.testing.assert_allclose(found.coefficients[1], own.coefficients + everybody.coefficients)
    np.testing.assert_allclose(found.intercepts[1], own.intercepts + everybody.intercepts)


def test_an_action_without_rows_gets_no_model_from_the_others():
    sums, rows, *_ = rare_and_frequent(same_slopes=True)
    sums[1], rows[1] = 0.0, 0.0
    assert least_squares.ridge_toward_all(sums, rows).supported.tolist() == [True, False]
