import numpy as np
import pytest

import fedopl


@pytest.fixture
def scored(draw):
    data = draw(120, confounded=True, known=True)
    return data, fedopl.cross_fit(data)


def test_aipw_is_the_papers_formula(scored):
    data, nuisances = scored
    values = fedopl.aipw_scores(data, nuisances).values
    for i in range(data.n_rows):
        for a in range(data.n_actions):
            mean = nuisances.outcome_means[i, a]
            weight = 1 / nuisances.propensities[i, a]
            expected = mean + (data.rewards[i] - mean) * weight * (data.actions[i] == a)
            assert values[i, a] == pytest.approx(expected, rel=1e-12)


def test_dm_is_the_outcome_model_and_ipw_the_weighted_reward(scored):
    data, nuisances = scored
    np.testing.assert_array_equal(fedopl.dm_scores(data, nuisances).values, nuisances.outcome_means)
    logged = np.arange(data.n_rows), data.actions
    expected = np.zeros((data.n_rows, data.n_actions))
    expected[logged] = data.rewards / nuisances.propensities[logged]
    np.testing.assert_allclose(fedopl.ipw_scores(data, nuisances).values, expected)


def test_self_normalised_weights_average_one(scored):
    data, nuisances = scored
    same = fedopl.LoggedData(
        data.contexts,
        data.actions,
        np.ones(data.n_rows),
        data.propensities,
        weights=np.linspace(0.5, 2, data.n_rows),
    )
    values = fedopl.self_normalised_ipw_scores(same, nuisances).values
    np.testing.assert_allclose(np.average(values, axis=0, weights=same.weights), 1)


def test_self_normalised_aipw_equals_aipw_where_weights_already_average_one(draw):
    data = draw(90)
    even = np.repeat(data.rows_per_action[None] / data.n_rows, data.n_rows, axis=0)
    data = fedopl.LoggedData(data.contexts, data.actions, data.rewards, even)
    nuisances = fedopl.cross_fit(data)
    np.testing.assert_allclose(
        fedopl.self_normalised_aipw_scores(data, nuisances).values,
        fedopl.aipw_scores(data, nuisances).values,
    )


@pytest.mark.parametrize(
    "kind",
    [
        fedopl.aipw_scores,
        fedopl.ipw_scores,
        fedopl.self_normalised_aipw_scores,
        fedopl.self_normalised_ipw_scores,
    ],
)
def test_nothing_is_clipped_unless_asked_and_then_it_is_reported(scored, kind):
    data, nuisances = scored
    plain = kind(data, nuisances)
    assert not plain.clipped_rows.any()
    logged = nuisances.propensities[np.arange(data.n_rows), data.actions]
    clipped = kind(data, nuisances, clip=0.3)
    expected = [((logged < 0.3) & (data.actions == a)).sum() for a in range(3)]
    assert clipped.clipped_rows.tolist() == expected
    assert sum(expected) > 0
    assert (clipped.values != plain.values).any()
    assert f"{sum(expected)} clipped" in repr(clipped)


@pytest.mark.parametrize("clip", [0, 1, -0.1, 2])
def test_clip_is_a_probability(scored, clip):
    with pytest.raises(fedopl.OptionError, match="clip: expected a propensity between 0 and 1"):
        fedopl.aipw_scores(*scored, clip=clip)


def test_nuisances_of_other_data_are_refused(draw):
    with pytest.raises(fedopl.DataError, match="nuisances: expected 50 rows"):
        fedopl.aipw_scores(draw(50), fedopl.cross_fit(draw(60)))


def test_the_repr_shows_counts_only(scored):
    assert repr(fedopl.aipw_scores(*scored)) == "Scores(aipw, 120 rows, 3 actions)"
