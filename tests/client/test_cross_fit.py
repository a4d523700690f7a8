import naive
import numpy as np
import pytest
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fedopl
from fedopl.client.disclosure.private_draws import SEED_ALONE, PrivateDraws
from fedopl.client.rows.chunks import Chunk
from fedopl.client.rows.folds import assign_folds_and_hold_out
from fedopl.client.rows.study_rows import StudyRows
from fedopl.client.scoring.cross_fit import NuisanceModels, fit_nuisances
from fedopl.client.scoring.outcome import action_blocks, fit_outcomes
from fedopl.client.scoring.propensity import fit_propensities
from fedopl.study.study import Study


def fit(data, **options):
    return fedopl.cross_fit(data, **{"propensity": "marginal", **options})


# --- equality with refitting -----------------------------------------------------------------


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("outcome", ["ridge", "ols"])
def test_sums_give_what_refitting_every_fold_gives(draw, outcome, weighted, offset):
    weights = np.random.default_rng(1).uniform(0.5, 2, 400) if weighted else None
    data = draw(400, n_features=8, weights=weights, offset=offset)
    nuisances = fit(data, outcome=outcome)
    expected = naive.refit(data, nuisances.folds, getattr(naive, outcome))
    np.testing.assert_allclose(nuisances.outcome_means, expected, rtol=1e-8, atol=1e-8)


def test_ols_is_scikit_learns_linear_regression(draw):
    data = draw(300)
    plugged = fit(data, outcome=LinearRegression()).outcome_means
    np.testing.assert_allclose(fit(data, outcome="ols").outcome_means, plugged, rtol=1e-8)


@pytest.mark.parametrize("outcome", ["ridge", "ols"])
def test_sums_equal_refitting_when_columns_are_collinear(draw, outcome):
    plain = draw(300)
    doubled = np.column_stack([plain.contexts, plain.contexts @ np.ones(plain.n_features)])
    data = fedopl.LoggedData(doubled, plain.actions, plain.rewards)
    nuisances = fit(data, outcome=outcome)
    expected = naive.refit(data, nuisances.folds, getattr(naive, outcome))
    np.testing.assert_allclose(nuisances.outcome_means, expected, rtol=1e-6, atol=1e-8)


def test_many_blocks_of_rows_add_up(draw, monkeypatch):
    data = draw(1000)
    at_once = fit(data).outcome_means
    monkeypatch.setattr("fedopl.client.rows.fold_sums.ROWS_SUMMED_AT_ONCE", 64)
    np.testing.assert_allclose(fit(data).outcome_means, at_once, rtol=1e-9, atol=1e-12)


def test_shared_ridge_uses_each_actions_own_block_and_one_penalty(draw):
    data = draw(300, n_features=6)
    nuisances = fit(data, outcome="shared-ridge")
    columns = action_blocks(data)
    errors = np.zeros(len(naive.PENALTIES))
    own = nuisances.folds == 0
    parts = []
    for penalty in naive.PENALTIES:
        rss = freedom = rows = 0.0
        for action in range(data.n_actions):
            chosen = ~own & (data.actions == action)
            x, y = data.contexts[chosen][:, columns[action]], data.rewards[chosen]
            weights = np.ones(len(y))
            design, target, solve, finish = naive._standardised(x, y, weights)
            got = naive.gcv_parts(design, target, solve(penalty), penalty, weights)
            rss, freedom, rows = rss + got[0], freedom + got[1], rows + got[2]
            parts.append(finish(solve(penalty))(data.contexts[own][:, columns[action]]))
        errors[len(parts) // data.n_actions - 1] = rss / (1 - freedom / rows) ** 2
    best = int(np.argmin(errors))
    expected = np.column_stack(parts[best * data.n_actions : (best + 1) * data.n_actions])
    np.testing.assert_allclose(nuisances.outcome_means[own], expected, rtol=1e-8)


def test_shared_ridge_needs_equal_blocks(draw):
    with pytest.raises(fedopl.DataError, match="5 features cannot be cut into 3 equal blocks"):
        fit(draw(60), outcome="shared-ridge")


# --- folds -----------------------------------------------------------------------------------


def test_folds_are_alike_in_size_and_actions(draw):
    data = draw(503)
    folds = fit(data).folds
    assert np.ptp(np.bincount(folds)) <= 1
    for action in range(data.n_actions):
        assert np.ptp(np.bincount(folds[data.actions == action])) <= 1


def test_another_seed_gives_other_folds(draw):
    data = draw(100)
    assert (fit(data, seed=1).folds != fit(data, seed=2).folds).any()


def test_whole_number_contexts_get_different_keys():
    contexts = np.array(np.meshgrid(*[range(5)] * 3)).reshape(3, -1).T
    data = fedopl.LoggedData(contexts, np.arange(125) % 2, contexts[:, 0])
    from fedopl.client.rows.row_keys import row_keys

    assert len(np.unique(row_keys(data.contexts, 0, ("folds",)))) == 125


def test_groups_share_a_fold(draw):
    groups = np.random.default_rng(0).integers(0, 40, 300)
    folds = fit(draw(300, groups=groups)).folds
    for group in range(40):
        assert len(np.unique(folds[groups == group])) == 1
    assert len(np.unique(folds)) == 5


def test_folds_shrink_to_an_action_with_few_rows():
    rng = np.random.default_rng(0)
    actions = np.repeat([0, 1], [50, 3])
    data = fedopl.LoggedData(rng.standard_normal((53, 2)), actions, rng.standard_normal(53))
    nuisances = fit(data)
    assert nuisances.n_folds == 3
    assert nuisances.notes[0] == "3 folds instead of 5: an action has only 3 rows"
    assert nuisances.supported.all()


def test_more_folds_than_rows_are_cut():
    data = fedopl.LoggedData(np.eye(4), [0, 1, 0, 1], np.arange(4.0))
    assert fit(data, folds=100).n_folds == 2


def test_one_row_cannot_be_cross_fitted():
    data = fedopl.LoggedData([[1.0]], ["a"], [1], action_names="ab")
    with pytest.raises(fedopl.DataError, match="at least 2 rows, came 1"):
        fit(data)


def test_one_group_cannot_be_cross_fitted(draw):
    with pytest.raises(fedopl.DataError, match="at least 2 groups, came 1"):
        fit(draw(10, groups=[7] * 10))


# --- actions without support -----------------------------------------------------------------


def test_an_action_never_taken_gets_no_invented_outcome(draw):
    plain = draw(100)
    data = fedopl.LoggedData(
        plain.contexts, plain.actions, plain.rewards, action_names=[*plain.action_names, "new"]
    )
    for outcome in ("ridge", "ols", LinearRegression()):
        nuisances = fit(data, outcome=outcome)
        assert np.isnan(nuisances.outcome_means[:, 3]).all()
        assert np.isfinite(nuisances.outcome_means[:, :3]).all()
        assert not nuisances.supported[:, 3].any()
        assert "action 'new' was never taken: it has no outcome model" in nuisances.notes
    scores = fedopl.aipw_scores(data, nuisances)
    assert np.isnan(scores.values[:, 3]).all()
    with pytest.raises(fedopl.DataError, match="none of the rows has a score"):
        fedopl.estimate_value(scores, "new")


@pytest.mark.parametrize("propensity", ["marginal", "logistic", "boosting", "auto"])
def test_an_action_taken_once_has_no_model_where_that_row_is(propensity):
    rng = np.random.default_rng(0)
    actions = np.repeat([0, 1, 2], [20, 20, 1])
    data = fedopl.LoggedData(rng.standard_normal((41, 2)), actions, rng.standard_normal(41))
    nuisances = fit(data, propensity=propensity, folds=4)
    own = nuisances.folds == nuisances.folds[40]
    assert np.isnan(nuisances.outcome_means[own, 2]).all()
    assert np.isfinite(nuisances.outcome_means[~own, 2]).all()
    assert "action '2' has no outcome model in 1 of 4 folds: too few rows took it" in (
        nuisances.notes
    )
    scores = fedopl.aipw_scores(data, nuisances)
    assert np.isnan(scores.values[40, 2])
    assert fedopl.estimate_value(scores, "2").n_rows == (~own).sum()


def test_a_constant_reward_is_predicted_exactly(draw):
    plain = draw(50)
    data = fedopl.LoggedData(plain.contexts, plain.actions, np.full(50, 4.2))
    for outcome in ("ridge", "ols"):
        np.testing.assert_allclose(fit(data, outcome=outcome).outcome_means, 4.2)


# --- propensities ----------------------------------------------------------------------------


def test_uniform_logging_is_taken_for_marginal(draw):
    nuisances = fedopl.cross_fit(draw(400, n_features=20))
    assert nuisances.propensity == "marginal"
    assert "least cross-validated log loss: marginal" in nuisances.notes[2]


def test_confounded_logging_is_taken_for_logistic(draw):
    data = draw(600, confounded=True)
    nuisances = fedopl.cross_fit(data)
    assert nuisances.propensity == "logistic"
    truth = draw(600, confounded=True, known=True).propensities
    assert np.abs(nuisances.propensities - truth).mean() < 0.06


def test_marginal_is_the_share_in_the_other_folds(draw):
    weights = np.random.default_rng(1).uniform(0.5, 2, 90)
    data = draw(90, weights=weights)
    nuisances = fit(data)
    for row in (0, 41, 89):
        others = nuisances.folds != nuisances.folds[row]
        taken = [weights[others & (data.actions == a)].sum() for a in range(3)]
        np.testing.assert_allclose(nuisances.propensities[row], taken / np.sum(taken))


def test_known_propensities_are_used_as_given(draw):
    data = draw(100, known=True, confounded=True)
    nuisances = fedopl.cross_fit(data)
    assert nuisances.propensity == "known"
    np.testing.assert_array_equal(nuisances.propensities, data.propensities)


def test_the_logged_actions_propensity_alone_is_enough(draw):
    data = draw(100, known=True, confounded=True)
    logged = data.propensities[np.arange(100), data.actions]
    alone = fedopl.LoggedData(data.contexts, data.actions, data.rewards, logged)
    np.testing.assert_array_equal(
        fedopl.aipw_scores(alone, fedopl.cross_fit(alone)).values,
        fedopl.aipw_scores(data, fedopl.cross_fit(data)).values,
    )


def test_known_propensities_can_be_estimated_all_the_same(draw):
    assert fedopl.cross_fit(draw(100, known=True), propensity="marginal").propensity == "marginal"


def test_asking_for_known_propensities_needs_some(draw):
    with pytest.raises(fedopl.DataError, match="the data have none"):
        fedopl.cross_fit(draw(50), propensity="known")


def test_the_papers_preset_is_ols_and_logistic(draw):
    nuisances = fedopl.cross_fit(draw(200), preset="paper")
    assert (nuisances.outcome, nuisances.propensity) == ("ols", "logistic")


# --- plugged-in models -----------------------------------------------------------------------


def test_any_scikit_learn_model_can_be_plugged_in(draw):
    data = draw(150)
    nuisances = fedopl.cross_fit(
        data, outcome=KNeighborsRegressor(3), propensity=LogisticRegression()
    )
    assert (nuisances.outcome, nuisances.propensity) == (
        "KNeighborsRegressor",
        "LogisticRegression",
    )
    assert np.isfinite(nuisances.outcome_means).all()
    np.testing.assert_allclose(nuisances.propensities.sum(axis=1), 1)


def test_plugged_in_models_follow_the_seed_and_are_left_as_they_were(draw):
    data = draw(80)
    forest = RandomForestRegressor(5)
    chances = RandomForestClassifier(5)

    def means(seed):
        got = fedopl.cross_fit(data, outcome=forest, propensity=chances, seed=seed)
        return np.hstack([got.outcome_means, got.propensities])

    np.testing.assert_array_equal(means(3), means(3))
    assert (means(3) != means(4)).any()
    assert forest.random_state is None
    assert not hasattr(forest, "estimators_")


def test_weights_reach_plugged_in_models(draw):
    weights = np.random.default_rng(1).uniform(0.1, 3, 200)
    data = draw(200, weights=weights)
    pipeline = make_pipeline(StandardScaler(), LinearRegression())
    np.testing.assert_allclose(
        fit(data, outcome=pipeline).outcome_means, fit(data, outcome="ols").outcome_means
    )
    with pytest.raises(
        fedopl.OptionError, match=r"KNeighborsRegressor\.fit takes no sample_weight"
    ):
        fit(data, outcome=KNeighborsRegressor())


def test_logistic_propensities_use_weights(draw):
    data = draw(200, confounded=True)
    heavy = draw(200, confounded=True, weights=np.where(data.actions == 0, 9.0, 1.0))
    light = fedopl.cross_fit(data, propensity="logistic").propensities
    assert fedopl.cross_fit(heavy, propensity="logistic").propensities[:, 0].mean() > (
        light[:, 0].mean() + 0.2
    )


class Broken(DummyRegressor):
    def fit(self, X, y, sample_weight=None):
        raise ValueError("out of luck")


class Forgetful(DummyRegressor):
    def predict(self, X):
        return np.full(len(X), np.nan)


def test_a_failing_model_is_named(draw):
    with pytest.raises(fedopl.ModelError, match=r"fold 1, action 'a0': Broken\.fit .* out of luck"):
        fit(draw(50), outcome=Broken())
    with pytest.raises(fedopl.ModelError, match=r"Forgetful\.predict gave missing"):
        fit(draw(50), outcome=Forgetful())


# --- options ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"outcome": "rigde"},
            "outcome: expected one of ridge, ols, boosting, block-ridge, .* 'rigde'",
        ),
        ({"outcome": 3}, "outcome: expected a name or a scikit-learn regressor"),
        ({"outcome": DummyRegressor}, "an object, not a class"),
        ({"propensity": "known?"}, "propensity: expected one of auto, marginal"),
        ({"propensity": DummyRegressor()}, "propensity: .* predict_proba"),
        ({"folds": 1}, "folds: expected 2 to 1000, came 1"),
        ({"preset": "papre"}, "preset: expected one of paper"),
        ({"preset": "paper", "propensity": "marginal"}, "preset: it chooses"),
    ],
)
def test_options_are_checked(draw, options, message):
    with pytest.raises(fedopl.OptionError, match=message):
        fedopl.cross_fit(draw(50), **options)


def test_it_says_what_it_did_and_shows_no_row(draw):
    nuisances = fedopl.cross_fit(draw(120), propensity=DummyClassifier())
    assert repr(nuisances) == (
        "Nuisances(120 rows, 3 actions, 5 folds, outcome ridge, propensity DummyClassifier)"
    )
    assert nuisances.notes[0] == "5 folds as asked"
    assert "generalised cross-validation" in nuisances.notes[1]


# --- rows set apart ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "propensity", ["marginal", "logistic", "boosting", "auto", LogisticRegression()], ids=str
)
@pytest.mark.parametrize("outcome", ["ridge", "ols", LinearRegression()], ids=str)
def test_rows_set_apart_teach_nothing(draw, outcome, propensity):
    data = draw(240, confounded=True)
    folds = assign_folds_and_hold_out(data, 4, 0.25, seed=0)
    apart = folds.held_out
    changed = fedopl.LoggedData(
        data.contexts,
        np.where(apart, (data.actions + 1) % 3, data.actions),
        np.where(apart, 1e3, data.rewards),
        action_names=data.action_names,
    )
    before, after = (
        fit_nuisances(Chunk(data=d, folds=folds), outcome, propensity, seed=0)
        for d in (data, changed)
    )
    np.testing.assert_array_equal(before.outcome_means, after.outcome_means)
    np.testing.assert_array_equal(before.propensities, after.propensities)
    assert np.isfinite(before.outcome_means[apart]).all()


def test_rows_that_agree_are_set_apart_one_by_one():
    """With a few kinds of rows, whole kinds must not be missing from either side."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 4, 2000).astype(float)
    data = fedopl.LoggedData(kinds[:, None], rng.integers(0, 2, 2000), rng.random(2000))
    apart = assign_folds_and_hold_out(data, 5, 0.25, 0).held_out
    assert apart.mean() == pytest.approx(0.25, abs=0.001)
    for kind in range(4):
        assert apart[kinds == kind].mean() == pytest.approx(0.25, abs=0.06)


# --- models predict any chunk -------------------------------------------------------------------


@pytest.mark.parametrize("propensity", ["known", "marginal", "logistic", "boosting", "auto"])
@pytest.mark.parametrize("outcome", ["ridge", "ols"])
def test_models_predict_a_part_of_the_rows_as_they_predict_all(draw, outcome, propensity):
    whole = draw(300)
    known = np.full((300, whole.n_actions), 1 / whole.n_actions)
    data = fedopl.LoggedData(
        whole.contexts,
        whole.actions,
        whole.rewards,
        known if propensity == "known" else None,
        action_names=whole.action_names,
    )
    chunk = Chunk(data=data, folds=assign_folds_and_hold_out(data, 4, 0.25, seed=0))
    models = NuisanceModels(
        outcomes=fit_outcomes(chunk, outcome, 0),
        propensities=fit_propensities(chunk, propensity, 0),
    )
    every = models.of(chunk)
    order = np.random.default_rng(0).permutation(300)[:90]
    some = models.of(chunk.taken(order))
    np.testing.assert_allclose(some.outcome_means, every.outcome_means[order], rtol=1e-12)
    np.testing.assert_allclose(some.propensities, every.propensities[order], rtol=1e-12)
    np.testing.assert_array_equal(some.folds, every.folds[order])
    assert some.notes == every.notes


def test_rows_in_memory_are_classified_once(draw, monkeypatch):
    data = draw(300)
    chunk = Chunk(data=data, folds=assign_folds_and_hold_out(data, 4, 0.25, seed=0))
    found = fit_propensities(chunk, "logistic", 0)
    first = found.of(chunk)
    monkeypatch.setattr("fedopl.client.scoring.propensity.sklearn_models.answers", None)
    assert found.of(chunk) is first


@pytest.mark.parametrize("most", [300, 100, 37])
def test_a_sample_is_spread_evenly_and_keeps_all_of_its_rows(draw, most):
    data = draw(300, weights=np.arange(1.0, 301.0))
    study = Study(actions=data.action_names, features=data.feature_names)
    rows = StudyRows(data, study, 0, PrivateDraws(study.seed, "", SEED_ALONE))
    sample = rows.sample(most)
    step = -(-300 // most)
    taken = rows.whole.taken(np.arange(0, 300, step))
    assert (sample is rows.whole) == (step == 1)
    for name in ("contexts", "actions", "rewards", "weights"):
        np.testing.assert_array_equal(getattr(sample.data, name), getattr(taken.data, name))
    np.testing.assert_array_equal(sample.folds.of_row, taken.folds.of_row)
    assert sample.folds.n_parts == rows.whole.folds.n_parts
