import numpy as np
import pytest

import fedopl


def test_overlap_of_a_small_table_by_hand():
    chances = np.array([[0.5, 0.5], [0.2, 0.8], [0.04, 0.96], [0.5, 0.5]])
    data = fedopl.LoggedData(np.eye(4), [0, 0, 1, 1], [1.0, 2, 3, 4], chances)
    nuisances = fedopl.cross_fit(data)
    found = fedopl.overlap(data, nuisances)
    assert found.rows.tolist() == [2, 2]
    weights = np.array([1 / 0.5, 1 / 0.2])
    assert found.effective_rows[0] == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    assert found.share_below_floor.tolist() == [0.25, 0]
    np.testing.assert_allclose(found.propensity_quantiles[0, [0, -1]], [0.04, 0.5])
    residuals = data.rewards[:2] - nuisances.outcome_means[:2, 0]
    assert found.residual_variance[0] == pytest.approx(np.mean(residuals**2))


def test_equal_propensities_lose_no_rows(draw):
    data = draw(300)
    found = fedopl.overlap(data, fedopl.cross_fit(data, propensity="marginal"))
    np.testing.assert_allclose(found.effective_rows, found.rows, rtol=1e-3)
    assert found.cautions == ()
    assert "Caution" not in str(found)


def test_cautions_name_the_action():
    rng = np.random.default_rng(0)
    actions = np.repeat(["common", "rare"], [190, 10])
    data = fedopl.LoggedData(
        rng.standard_normal((200, 2)),
        actions,
        rng.standard_normal(200),
        action_names=["common", "rare", "never"],
    )
    cautions = fedopl.overlap(
        data, fedopl.cross_fit(data, propensity="marginal"), floor=0.06
    ).cautions
    assert any(c.startswith("'rare' is judged on 10 effective rows") for c in cautions)
    assert any(c.startswith("'rare' had a propensity below 0.06 in 100% of rows") for c in cautions)
    assert "'never' was never taken: nothing here says what it is worth" in cautions
    assert not any("common" in c for c in cautions)


def test_only_logged_propensities_are_enough(draw):
    data = draw(60, known=True)
    logged = data.propensities[np.arange(60), data.actions]
    alone = fedopl.LoggedData(data.contexts, data.actions, data.rewards, logged)
    found = fedopl.overlap(alone, fedopl.cross_fit(alone))
    assert np.isfinite(found.effective_rows).all()


def test_it_prints_a_table(draw):
    data = draw(300)
    text = str(fedopl.overlap(data, fedopl.cross_fit(data, propensity="marginal")))
    assert text.splitlines()[0].split()[:3] == ["action", "rows", "effective"]
    assert len(text.splitlines()) == 2 + 3


def test_the_floor_is_a_probability(draw):
    data = draw(60)
    with pytest.raises(fedopl.OptionError, match="floor"):
        fedopl.overlap(data, fedopl.cross_fit(data), floor=5)
