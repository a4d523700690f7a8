"""Boosted propensities: chosen where logging bends, and nowhere else."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_info

import fedopl
from fedopl.client.rows.chunks import Chunk
from fedopl.client.rows.folds import assign_folds
from fedopl.client.scoring import propensity, propensity_models
from fedopl.client.scoring.propensity_models import Booster
from fedopl.client.scoring.sklearn_models import SHORT_STEP, TREE_OPTIONS


def logged(kind, seed, n_rows=300, **options):
    """Rows whose actions followed a curve, a line, or nothing; and how likely the second was."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n_rows, 3))
    odds = {"bent": 2 * x[:, 0] ** 2 - 2.6, "line": x[:, 0] - 0.5 * x[:, 1], "none": 0 * x[:, 0]}
    chances = 1 / (1 + np.exp(-odds[kind]))
    actions = (rng.random(n_rows) < chances).astype(int)
    data = fedopl.LoggedData(x, actions, x[:, 2], action_names=["a", "b"], **options)
    return data, chances


def chunk_of(data, folds=4):
    return Chunk(data=data, folds=assign_folds(data, folds, 0))


def off(nuisances, chances):
    return np.abs(nuisances.propensities[:, 1] - chances).mean()


# --- choosing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_logging_that_bends_is_boosted(seed):
    data, chances = logged("bent", seed)
    found = fedopl.cross_fit(data)
    assert found.propensity == "boosting"
    assert "by more than a standard error: marginal" in found.notes[2]
    assert off(found, chances) < 0.5 * off(fedopl.cross_fit(data, propensity="logistic"), chances)


@pytest.mark.parametrize("n_rows", [200, 1000])
@pytest.mark.parametrize(
    ("kind", "simple"), [("line", {"logistic"}), ("none", {"marginal", "logistic"})]
)
def test_simple_logging_keeps_its_simple_model(kind, simple, n_rows):
    chosen = [fedopl.cross_fit(logged(kind, seed, n_rows)[0]).propensity for seed in range(8)]
    assert set(chosen) <= simple


def test_boosting_that_is_better_by_less_than_a_standard_error_is_not_chosen(monkeypatch):
    data, _ = logged("bent", 0)
    monkeypatch.setattr(propensity, "_mean_and_error", lambda values, _: (np.nanmean(values), 1.0))
    found = fedopl.cross_fit(data)
    assert "boosting 0." in found.notes[2]
    assert found.propensity != "boosting"


def test_groups_have_a_say_in_what_is_sure():
    """Rows that come in identical pairs are half as many."""
    data, _ = logged("bent", 0, 200)
    twice = np.repeat(np.arange(200), 2)
    pairs = fedopl.LoggedData(
        *(a[twice] for a in (data.contexts, data.actions, data.rewards)), groups=twice
    )
    losses = np.random.default_rng(0).random(200)
    alone = propensity._mean_and_error(losses, chunk_of(data))
    assert propensity._mean_and_error(losses[twice], chunk_of(pairs)) == pytest.approx(alone)


@pytest.mark.parametrize(("n_rows", "n_actions"), [(propensity.FEWEST_BOOSTED - 1, 2), (400, 11)])
def test_boosting_is_not_tried_where_it_cannot_win_or_takes_long(n_rows, n_actions, monkeypatch):
    monkeypatch.setattr(propensity, "Booster", None)
    rng = np.random.default_rng(0)
    x, actions = rng.standard_normal((n_rows, 2)), rng.integers(0, n_actions, n_rows)
    found = fedopl.cross_fit(fedopl.LoggedData(x, actions, x[:, 0]))
    assert found.propensity in ("marginal", "logistic")


def test_one_fold_is_enough_to_see_that_boosting_does_not_win(monkeypatch):
    fits = []

    class Counting(Booster):
        def fitted(self, rows, part):
            fits.append(part)
            return super().fitted(rows, part)

    monkeypatch.setattr(propensity, "Booster", Counting)
    found = fedopl.cross_fit(logged("line", 0)[0])
    assert fits == [0]
    assert found.notes[2].endswith("; boosting was no better in one fold")


@pytest.mark.parametrize(("most_tried", "n_fits"), [(300, 5), (299, 6)])
def test_the_fold_that_boosting_was_tried_in_is_fitted_once(monkeypatch, most_tried, n_fits):
    """Of five; where it was tried on fewer rows than there are, that is another model."""
    data, fits, honest = logged("bent", 0)[0], [], Booster._fitted_anew

    def counted(booster, rows):
        fits.append(rows)
        return honest(booster, rows)

    monkeypatch.setattr(propensity, "MOST_TRIED", most_tried)
    monkeypatch.setattr(Booster, "_fitted_anew", counted)
    found = fedopl.cross_fit(data)
    assert len(fits) == n_fits
    asked = fedopl.cross_fit(data, propensity="boosting")
    np.testing.assert_array_equal(found.propensities, asked.propensities)


@pytest.mark.parametrize(("kind", "chosen"), [("bent", "boosting"), ("line", "logistic")])
def test_of_many_rows_the_same_is_chosen_from_fewer_fits(kind, chosen, monkeypatch):
    """Boosting is tried on some rows, and rounds are chosen on some; the model is of all."""
    data, chances = logged(kind, 0, 3_000)
    before = fedopl.cross_fit(data)
    monkeypatch.setattr(propensity, "MOST_TRIED", 1_000)
    monkeypatch.setattr(propensity_models, "MOST_CHOSEN_ON", 1_000)
    found = fedopl.cross_fit(data)
    assert before.propensity == found.propensity == chosen
    assert off(found, chances) < 1.1 * off(before, chances)


def test_boosting_is_tried_on_some_rows_and_judged_by_all_of_the_fold(monkeypatch):
    data, judged, honest = logged("bent", 0)[0], [], propensity._mean_and_error

    def seen(values, chunk):
        judged.append(int(np.isfinite(values).sum()))
        return honest(values, chunk)

    monkeypatch.setattr(propensity, "MOST_TRIED", 150)
    monkeypatch.setattr(propensity, "_mean_and_error", seen)
    folds = fedopl.cross_fit(data).folds
    assert int((folds == 0).sum()) in judged
    assert int((folds[::2] == 0).sum()) not in judged


# --- fitting -----------------------------------------------------------------------------------


def test_rounds_that_are_chosen_on_fewer_rows_grow_with_the_rows_that_are_fitted(monkeypatch):
    data, _ = logged("bent", 1, 1_200)
    chunk = chunk_of(data)
    booster, others = Booster(chunk, 0), chunk.folds.learns_from(0)
    monkeypatch.setattr(propensity_models, "MOST_CHOSEN_ON", 300)
    some = propensity_models._thinned(others)
    assert some.sum() <= 300
    assert (others | ~some).all()
    rounds = propensity_models._best_rounds(data, some, booster._kept)
    model = booster.fitted(others, 0)
    assert model.n_iter_ == round(rounds * (others.sum() / some.sum()) ** (1 / 3)) > rounds


def test_a_fold_has_the_rounds_that_were_best_on_rows_kept_back():
    data, _ = logged("bent", 1)
    chunk = chunk_of(data)
    booster, others = Booster(chunk, 0), chunk.folds.learns_from(0)
    model = booster.fitted(others, 0)
    fitting, kept = others & ~booster._kept, others & booster._kept
    many = HistGradientBoostingClassifier(**TREE_OPTIONS, learning_rate=SHORT_STEP, max_iter=240)
    many.fit(data.contexts[fitting], data.actions[fitting])
    places = np.arange(kept.sum()), data.actions[kept]
    losses = [-np.log(p[places]).mean() for p in many.staged_predict_proba(data.contexts[kept])]
    assert model.n_iter_ == 1 + int(np.argmin(losses))
    again = HistGradientBoostingClassifier(
        **TREE_OPTIONS, learning_rate=SHORT_STEP, max_iter=model.n_iter_
    )
    again.fit(data.contexts[others], data.actions[others])
    np.testing.assert_array_equal(
        model.predict_proba(data.contexts), again.predict_proba(data.contexts)
    )


def test_no_rounds_at_all_may_be_best():
    """Then a fold has the shares of actions among all of its rows, those kept back too."""
    data, _ = logged("none", 1, 600)
    chunk = chunk_of(data)
    booster, others = Booster(chunk, 0), chunk.folds.learns_from(0)
    found = booster.fitted(others, 0).predict_proba(data.contexts)
    np.testing.assert_allclose(found[:, 1], data.actions[others].mean(), rtol=1e-12)


def test_kept_back_rows_are_whole_groups_in_every_fold():
    groups = np.repeat(np.arange(60), 5)
    chunk = chunk_of(logged("bent", 0, groups=groups)[0])
    kept = Booster(chunk, 0)._kept.reshape(60, 5)
    assert (kept == kept[:, :1]).all()
    assert 0.1 < kept.mean() < 0.3
    rows = kept.reshape(-1)
    assert all((rows & chunk.folds.learns_from(fold)).any() for fold in range(4))


def test_the_order_of_rows_changes_nothing():
    data, _ = logged("bent", 0)
    order = np.random.default_rng(0).permutation(data.n_rows)
    found, moved = (fedopl.cross_fit(d, propensity="boosting") for d in (data, data.taken(order)))
    np.testing.assert_allclose(moved.propensities, found.propensities[order], rtol=1e-9)


def test_a_row_has_no_part_in_its_own_propensity():
    data, _ = logged("bent", 0)
    own = fedopl.cross_fit(data, propensity="boosting")
    chunk = chunk_of(data, 5)
    fold = chunk.folds.of_row == chunk.folds.of_row[7]
    # Another action of the row moves folds, so models are asked directly.
    changed = data.actions.copy()
    changed[fold] = 1 - changed[fold]
    other = fedopl.LoggedData(data.contexts, changed, data.rewards, action_names=data.action_names)
    before, after = Booster(chunk, 0), Booster(chunk, 0)
    after._data = other
    np.testing.assert_array_equal(
        *(one.fitted(~fold, 0).predict_proba(data.contexts) for one in (before, after))
    )
    assert own.propensity == "boosting"


@pytest.mark.parametrize("heavy", [1.0, 5.0])
def test_rows_count_by_their_weight(heavy):
    plain, _ = logged("bent", 0)
    weights = np.where(plain.contexts[:, 1] > 0, heavy, 1.0)
    weighed = logged("bent", 0, weights=weights)[0]
    found = [fedopl.cross_fit(d, propensity="boosting").propensities for d in (plain, weighed)]
    assert np.allclose(*found) == (heavy == 1.0)


def test_fits_take_one_thread(monkeypatch):
    threads = []

    def fitted(*_given):
        pools = [one for one in threadpool_info() if one["user_api"] == "openmp"]
        threads.extend(one["num_threads"] for one in pools)
        return 0

    monkeypatch.setattr(propensity_models, "_best_rounds", fitted)
    Booster(chunk_of(logged("bent", 0)[0]), 0).fitted(np.ones(300, bool), 0)
    assert set(threads) == {1}


def test_an_action_that_only_rows_kept_back_took_is_no_obstacle():
    data, _ = logged("bent", 0)
    actions = data.actions.copy()
    chunk = chunk_of(data)
    actions[np.flatnonzero(Booster(chunk, 0)._kept)[:3]] = 2
    three = fedopl.LoggedData(data.contexts, actions, data.rewards, action_names=["a", "b", "c"])
    booster = Booster(Chunk(data=three, folds=chunk.folds), 0)
    booster._kept = Booster(chunk, 0)._kept
    model = booster.fitted(np.ones(300, bool), 0)
    assert model.classes_.tolist() == [0, 1, 2]
